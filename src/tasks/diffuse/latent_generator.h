#pragma once

#include "engine/engine.h"
#include "tasks/diffuse/denoise_rows.h"
#include "tasks/diffuse/sampler.h"

namespace hearth::tasks {

/// Condition of a generated image: a class label, or text embeddings and pooled vector as in
/// data::LatentSource::text.
struct Condition {
  int32_t label = 0;
  std::vector<float> text, pooled;
};

struct LatentGeneratorOptions {
  DenoiseFormat format;
  Extent latents = 0;
  SamplerOptions sampler;
  /// Guidance scale. Scale of classifier-free guidance (Ho and Salimans 2022, arXiv 2207.12598), 1: none; or,
  /// for a model with a guidance embedding, an input of the model.
  double guidance = 1;
  Condition unconditional;  ///< condition of the unconditional prediction, used if compares() is true
  int64_t batch = 1;        ///< rows of an evaluation micro-batch
  int64_t row_length = 0;   ///< row_length of an evaluation micro-batch

  /// True if each sampling step also computes the unconditional prediction (classifier-free guidance).
  bool compares() const { return guidance != 1 && !format.model.guidance; }
};

/// Generates latents by running a sampler with the evaluation program of a denoiser.
class LatentGenerator {
 public:
  /// `engine` and `noising` must outlive this object.
  LatentGenerator(engine::Engine& engine, const Noising& noising, LatentGeneratorOptions options);

  /// Generates latents [channels, height, width] for each condition. Latents i start from noise that depends
  /// only on `seed` and first + i, so results do not depend on the batch size.
  std::vector<std::vector<float>> make(std::span<const Condition> conditions, uint64_t seed,
                                       uint64_t first = 0);

 private:
  using Bytes = std::vector<std::byte>;
  /// Write the conditions of a batch, or of one row, into the input arrays.
  void fill(std::span<const Condition> conditions);
  void fill(int64_t row, const Condition& condition);
  /// Returns the denoiser's prediction of the tokens x at timestep `time`.
  std::span<const float> evaluate(std::span<const float> x, double time);

  engine::Engine& engine_;
  const Noising& noising_;
  LatentGeneratorOptions options_;
  data::ArrayFormats formats_;
  std::array<Bytes, data::kMaxArrays> arrays_;
  engine::MicroBatch batch_;  ///< micro-batch that refers to arrays_
};

}  // namespace hearth::tasks
