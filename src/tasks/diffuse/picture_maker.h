#pragma once

#include "engine/engine.h"
#include "tasks/diffuse/denoise_rows.h"
#include "tasks/diffuse/sampler.h"

namespace hearth::tasks {

/// What a picture is made from: a class, or text as LatentSource has it.
struct Condition {
  int32_t label = 0;
  std::vector<float> text, pooled;
};

struct PictureMakerOptions {
  DenoiseFormat format;
  Extent latents = 0;
  SamplerOptions sampler;
  /// How much more than without a condition it counts (Ho and Salimans 2022, arXiv 2207.12598); 1: as it is.
  /// A model with a guidance embedding is told it instead.
  double guidance = 1;
  Condition unconditional;  ///< what guidance is measured from, where it compares
  int64_t batch = 1;        ///< rows of the engine's evaluations
  int64_t row_length = 0;   ///< and their length

  /// Whether each step evaluates without the condition too.
  bool compares() const { return guidance != 1 && !format.model.guidance; }
};

/// Makes pictures with a denoiser's evaluation program.
class PictureMaker {
 public:
  /// Engine and noising outlive it.
  PictureMaker(engine::Engine& engine, const Noising& noising, PictureMakerOptions options);

  /// Latents [channels, height, width] of a picture for each condition. The i-th one's noise is that of
  /// `seed` and first + i, whatever else is made beside it.
  std::vector<std::vector<float>> make(std::span<const Condition> conditions, uint64_t seed,
                                       uint64_t first = 0);

 private:
  using Bytes = std::vector<std::byte>;
  void fill(std::span<const Condition> conditions);
  void fill(int64_t row, const Condition& condition);
  std::span<const float> evaluate(std::span<const float> x, double time);

  engine::Engine& engine_;
  const Noising& noising_;
  PictureMakerOptions options_;
  data::ArrayFormats formats_;
  std::array<Bytes, data::kMaxArrays> arrays_;
  engine::MicroBatch batch_;  ///< of the arrays
};

}  // namespace hearth::tasks
