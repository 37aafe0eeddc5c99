#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/extent.h"
#include "data/images/image.h"
#include "engine/engine.h"
#include "recipe/recipe.h"
#include "tasks/diffuse/picture_set.h"
#include "tasks/diffuse/sampler.h"

namespace hearth::run {

struct ImageSessionOptions {
  std::vector<std::string> overrides;  ///< of the model's recipe: device, precision, adapter.quantize, memory
  fs::path adapter;                    ///< a LoRA adapter, as a run, its folder or file; empty: none
  Extent size = 0;                     ///< in pixels; 0: the size that the model was trained on, or 1024
  int64_t batch = 1;  ///< max images of a class model that are generated together; at most 64
  int threads = 0;    ///< 0: every core
  /// False: the denoiser's memory is freed before images are decoded, and the next request loads it again.
  bool keeps_denoiser = true;
};

struct ImageRequest {
  std::string prompt;
  int64_t steps = 0;                    ///< 0: as the run's samples, or 20
  std::optional<double> guidance;       ///< none: as the run's samples, or 3.5
  std::optional<tasks::Solver> solver;  ///< none: the default of the model's objective
  uint64_t seed = 0;                    ///< of the first image; the next ones have seed + 1 and so on
  int64_t count = 1;
};

struct GeneratedImage {
  data::Image image;
  /// Settings of the image, by name: prompt, seed, steps, guidance, size, model.
  std::vector<std::pair<std::string, std::string>> settings;
  std::string note;  ///< parts of the prompt that were cut off; empty: none
};

/// Returns true if a folder holds a run or a model (of diffusers) that generates images.
bool generates_images(const fs::path& model);

/// A diffusion model, from a run's best weights or a model's folder, that is opened once for images of one
/// size and asked many times. The denoiser's engine and weights, the autoencoder and the encoded prompts stay
/// in memory; text encoders are read layer by layer for each new prompt.
class ImageSession {
 public:
  /// Reads the configuration; the denoiser is compiled and loaded for the first request, after its prompt
  /// is encoded. UserError if `model` is no such model.
  ImageSession(const fs::path& model, ImageSessionOptions options);

  /// An image depends on its seed alone, whatever else is generated. UserError for a class that the model
  /// does not have, and for a solver of another objective.
  std::vector<GeneratedImage> generate(const ImageRequest& request);

 private:
  tasks::PictureMakerOptions maker_options(const ImageRequest& request) const;
  tasks::Condition encode(const ImageRequest& request, tasks::PictureMakerOptions& options);
  engine::Engine& denoiser();
  void load_weights();

  fs::path model_;
  ImageSessionOptions options_;
  recipe::Recipe recipe_;
  tasks::Noising noising_;
  tasks::PictureMakerOptions maker_options_;
  std::unique_ptr<tasks::PictureTranslator> translator_;
  std::map<std::string, std::string> notes_;  ///< by prompt
  std::unique_ptr<engine::Engine> engine_;    ///< null until the first request
};

}  // namespace hearth::run
