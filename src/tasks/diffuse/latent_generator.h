#pragma once

#include "engine/engine.h"
#include "tasks/diffuse/denoise_rows.h"
#include "tasks/diffuse/sampler.h"

namespace hearth::tasks {

/// Condition of a generated image: a class, or text embeddings as in data::LatentSource::text.
struct Condition {
  int32_t label = 0;
  std::vector<float> text, pooled;
};

struct LatentGeneratorOptions {
  DenoiseFormat format;
  Extent latents = 0;
  SamplerOptions sampler;
  /// Scale of classifier-free guidance (Ho and Salimans 2022, arXiv 2207.12598); 1: none. A model with a
  /// guidance embedding receives it as an input instead.
  double guidance = 1;
  Condition unconditional;  ///< condition of the unconditional prediction, if compares()
  int64_t batch = 1;        ///< rows of an evaluation of the engine
  int64_t row_length = 0;   ///< row_length of those rows

  /// True if each step also evaluates the unconditional prediction.
  bool compares() const { return guidance != 1 && !format.model.guidance; }
};

/// Generates latents with the evaluation program of a denoiser.
class LatentGenerator {
 public:
  /// Engine and noising must outlive it.
  LatentGenerator(engine::Engine& engine, const Noising& noising, LatentGeneratorOptions options);

  /// Generates latents [channels, height, width] for each condition. Noise i depends only on `seed` and first
  /// + i, so results do not depend on the batch.
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
  engine::MicroBatch batch_;  ///< of the arrays
};

}  // namespace hearth::tasks
