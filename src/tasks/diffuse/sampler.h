#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tasks/diffuse/noising.h"

namespace hearth::tasks {

/// How noise becomes a picture. euler: the flow's differential equation; ddim (Song et al. 2020, arXiv
/// 2010.02502, eta 0) and dpm, DPM-Solver++ of order 2 (Lu et al. 2022, arXiv 2211.01095), for epsilon and v.
enum class Solver : uint8_t { euler, ddim, dpm };

struct SamplerOptions {
  Solver solver = Solver::euler;
  int64_t steps = 20;
  double shift = 1;  ///< euler: of the sigmas, towards noise
};

/// Levels that a sampler goes through, from noise (1) on; the last is 0, the picture.
std::vector<double> sampler_levels(const SamplerOptions& options);

/// Writes what the denoiser predicts of x at `time`.
using Denoise = FunctionRef<void(std::span<const float> x, double time, std::span<float> prediction)>;

/// Turns noise into pictures, in place. Deterministic: all chance is in the noise.
void sample(const Noising& noising, const SamplerOptions& options, Denoise denoise, std::span<float> x);

/// Noise of one picture: depends on the seed and the picture's number alone.
void draw_noise(uint64_t seed, uint64_t number, std::span<float> noise);

}  // namespace hearth::tasks
