#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tasks/diffuse/noising.h"

namespace hearth::tasks {

/// Solver of the sampler. euler: for flow matching. ddim (Song et al. 2020, arXiv 2010.02502, eta 0) and dpm
/// (DPM-Solver++ of order 2, Lu et al. 2022, arXiv 2211.01095): for epsilon and v.
enum class Solver : uint8_t { euler, ddim, dpm };

/// Solver, number of steps, and shift of a sampler.
struct SamplerOptions {
  Solver solver = Solver::euler;
  int64_t steps = 20;
  double shift = 1;  ///< euler: shift of the sigmas towards noise (shifted())
};

/// Returns the sigmas of the euler solver, descending from 1 (noise) to 0 (image).
std::vector<double> sampler_levels(const SamplerOptions& options);

/// Writes the denoiser's prediction of x at timestep `time`.
using Denoise = FunctionRef<void(std::span<const float> x, double time, std::span<float> prediction)>;

/// Integrates from noise to latents, in place. Deterministic: all randomness is in the initial x.
void sample(const Noising& noising, const SamplerOptions& options, Denoise denoise, std::span<float> x);

/// Fills `noise` with normal numbers that depend only on the seed and the image's number.
void draw_noise(uint64_t seed, uint64_t number, std::span<float> noise);

}  // namespace hearth::tasks
