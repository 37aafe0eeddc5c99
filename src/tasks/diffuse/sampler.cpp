#include "tasks/diffuse/sampler.h"

#include <cmath>
#include <optional>

#include "base/error.h"

namespace hearth::tasks {
namespace {

/// Number of the Philox stream of initial noise; training rows use streams 0 to 2.
constexpr uint32_t kSampleStream = 32;

/// Integrates dx / dsigma = predicted velocity with Euler's method.
void euler(const Noising& noising, const SamplerOptions& options, Denoise denoise, std::span<float> x) {
  const std::vector<double> levels = sampler_levels(options);
  std::vector<float> velocity(x.size());
  for (size_t i = 0; i + 1 < levels.size(); ++i) {
    denoise(x, noising.at(levels[i]).time, velocity);
    const auto step = static_cast<float>(levels[i + 1] - levels[i]);
    for (size_t j = 0; j < x.size(); ++j) x[j] += step * velocity[j];
  }
}

/// Returns the timesteps at which a sampler of `count` steps evaluates the denoiser, in descending order,
/// followed by -1 (no noise).
std::vector<int> visited_steps(int64_t count) {
  std::vector<int> steps;
  const auto stride = static_cast<double>(Noising::kSteps) / static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i)
    steps.push_back(Noising::kSteps - 1 - static_cast<int>(std::lround(static_cast<double>(i) * stride)));
  steps.push_back(-1);
  return steps;
}

/// Coefficients at a timestep; image() and epsilon() compute the image and the noise in `x` from a prediction
/// of epsilon or v.
struct Coefficients {
  float signal, noise;
  bool is_v;
  float image(float x, float prediction) const {
    return is_v ? signal * x - noise * prediction : (x - noise * prediction) / signal;
  }
  float epsilon(float x, float prediction) const {
    return is_v ? noise * x + signal * prediction : prediction;
  }
};
Coefficients coefficients_at(const Noising& noising, int step) {
  const double variance = noising.signal_variance(step);
  return {.signal = static_cast<float>(std::sqrt(variance)),
          .noise = static_cast<float>(std::sqrt(1 - variance)),
          .is_v = noising.objective() == recipe::Objective::v};
}

/// Samples with DDIM, eta = 0: each step computes the predicted image and adds the predicted noise to it at
/// the noise level of the next timestep.
void ddim(const Noising& noising, const SamplerOptions& options, Denoise denoise, std::span<float> x) {
  const std::vector<int> steps = visited_steps(options.steps);
  std::vector<float> prediction(x.size());
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    denoise(x, steps[i], prediction);
    const Coefficients here = coefficients_at(noising, steps[i]),
                       next = coefficients_at(noising, steps[i + 1]);
    for (size_t j = 0; j < x.size(); ++j) {
      const float image = here.image(x[j], prediction[j]);
      x[j] = next.signal * image + next.noise * here.epsilon(x[j], prediction[j]);
    }
  }
}

/// Returns half the logarithm of the signal-to-noise ratio (lambda of DPM-Solver).
double log_snr(const Coefficients& parts) { return std::log(parts.signal) - std::log(parts.noise); }

/// Samples with DPM-Solver++(2M), a multistep solver of order 2 for the predicted image, with log_snr() as
/// time.
void dpm(const Noising& noising, const SamplerOptions& options, Denoise denoise, std::span<float> x) {
  const std::vector<int> steps = visited_steps(options.steps);
  std::vector<float> prediction(x.size()), image(x.size()), before(x.size());
  std::optional<double> last_stride;
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    denoise(x, steps[i], prediction);
    const Coefficients here = coefficients_at(noising, steps[i]),
                       next = coefficients_at(noising, steps[i + 1]);
    for (size_t j = 0; j < x.size(); ++j) image[j] = here.image(x[j], prediction[j]);
    // The last step, to zero noise, has order 1, because its stride in log_snr() is infinite.
    const bool is_last = steps[i + 1] < 0;
    const double stride = is_last ? 0 : log_snr(next) - log_snr(here);
    const auto along = static_cast<float>(!is_last && last_stride ? stride / (2 * *last_stride) : 0);
    const auto kept = static_cast<float>(is_last ? 0 : next.noise / here.noise);
    const auto gained = static_cast<float>(is_last ? 1 : -next.signal * std::expm1(-stride));
    for (size_t j = 0; j < x.size(); ++j)
      x[j] = kept * x[j] + gained * (image[j] + along * (image[j] - before[j]));
    before.swap(image);
    last_stride = stride;
  }
}

}  // namespace

std::vector<double> sampler_levels(const SamplerOptions& options) {
  std::vector<double> levels;
  for (int64_t i = 0; i < options.steps; ++i) {
    const double level = 1 - static_cast<double>(i) / static_cast<double>(options.steps);
    levels.push_back(shifted(level, options.shift));
  }
  levels.push_back(0);
  return levels;
}

void sample(const Noising& noising, const SamplerOptions& options, Denoise denoise, std::span<float> x) {
  HEARTH_CHECK(noising.is_flow() == (options.solver == Solver::euler));
  const auto solve = options.solver == Solver::euler ? euler : options.solver == Solver::ddim ? ddim : dpm;
  solve(noising, options, denoise, x);
}

void draw_noise(uint64_t seed, uint64_t number, std::span<float> noise) {
  PhiloxSequence random(seed, number, kSampleStream);
  for (float& value : noise) value = random.normal();
}

}  // namespace hearth::tasks
