#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/extent.h"
#include "data/images/image.h"
#include "engine/engine.h"
#include "tasks/diffuse/diffusion_data.h"
#include "tasks/diffuse/sampler.h"
#include "tasks/job.h"

namespace hearth::run {

struct ImageSessionOptions {
  std::vector<std::string>
      overrides;      ///< KEY=VALUE for the recipe: device, precision, adapter.quantize, memory
  fs::path adapter;   ///< LoRA adapter: a run, a folder or a file; empty: none
  Extent size = 0;    ///< image size in pixels; 0: the training size of the model if known, else 1024
  int64_t batch = 1;  ///< max images per batch of a class-conditional model, at most 64
  int threads = 0;    ///< 0: one per core
  /// True if the denoiser stays loaded between requests. False: its memory is freed before images are
  /// decoded.
  bool keep_denoiser = true;
};

struct ImageRequest {
  std::string prompt;
  int64_t steps = 0;                    ///< sampling steps; 0: as in the evaluations of the run, or 20
  std::optional<double> guidance;       ///< nullopt: as in the evaluations of the run, or 3.5
  std::optional<tasks::Solver> solver;  ///< nullopt: the default for the objective of the model
  uint64_t seed = 0;                    ///< seed of the first image; image i has seed + i
  int64_t count = 1;
};

struct GeneratedImage {
  data::Image image;
  /// Names and values of the settings: prompt, seed, steps, guidance, size, model.
  std::vector<std::pair<std::string, std::string>> settings;
  std::string note;  ///< warning about truncated parts of the prompt; empty: none
};

/// Returns true if `model` is a model folder in diffusers' layout, or a run that generates images; `trained`:
/// recipe_of_run(model).
bool generates_images(const fs::path& model, const std::optional<recipe::Recipe>& trained);

/// A diffusion model that is loaded once and generates images of one size for many requests. Its weights are
/// the best ones of a run, or those in a model folder. The denoiser's engine and weights, the autoencoder and
/// the encoded prompts stay in memory; text encoders are read layer by layer for each new prompt.
class ImageSession {
 public:
  /// Reads the configuration. The denoiser is compiled and loaded by the first request, after its prompt is
  /// encoded. Throws a UserError if generates_images() is false.
  ImageSession(const fs::path& model, ImageSessionOptions options);

  /// Generates request.count images. The bits of an image depend on the settings and its seed, not on the
  /// batch or on other requests. Throws a UserError if the prompt of a class-conditional model is not one of
  /// its classes, or if the solver does not support the objective of the model.
  std::vector<GeneratedImage> generate(const ImageRequest& request);

 private:
  tasks::LatentGeneratorOptions maker_options(const ImageRequest& request) const;
  tasks::Condition encode(const ImageRequest& request, tasks::LatentGeneratorOptions& options);
  engine::Engine& denoiser();
  void load_weights();

  fs::path model_;
  ImageSessionOptions options_;
  tasks::Job job_;
  tasks::Noising noising_;
  tasks::LatentGeneratorOptions maker_options_;
  std::unique_ptr<tasks::DiffusionCodec> codec_;
  std::map<std::string, std::string> notes_;  ///< GeneratedImage::note of each encoded prompt
  std::unique_ptr<engine::Engine> engine_;    ///< null until the first request
};

}  // namespace hearth::run
