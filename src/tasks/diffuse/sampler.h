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

/// Options of a sampler, which generates latents from noise.
struct SamplerOptions {
  Solver solver = Solver::euler;
  int64_t steps = 20;
  double shift = 1;  ///< euler: timestep shift (shifted())
};

/// Returns the sigmas of the euler solver, in descending order from 1 (noise) to 0 (image).
std::vector<double> sampler_levels(const SamplerOptions& options);

/// Function that writes the denoiser's prediction for x at timestep `time`.
using Denoise = FunctionRef<void(std::span<const float> x, double time, std::span<float> prediction)>;

/// Generates latents from noise. `x`: initial noise, replaced by the latents. Draws no random numbers.
void sample(const Noising& noising, const SamplerOptions& options, Denoise denoise, std::span<float> x);

/// Fills `noise` with standard normal numbers that depend only on `seed` and `number`, the number of the
/// image.
void draw_noise(uint64_t seed, uint64_t number, std::span<float> noise);

}  // namespace hearth::tasks
