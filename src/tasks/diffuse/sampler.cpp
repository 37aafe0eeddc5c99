#include "tasks/diffuse/sampler.h"

#include <cmath>
#include <optional>

#include "base/error.h"

namespace hearth::tasks {
namespace {

/// Beside those that rows of training use.
constexpr uint32_t kSampleStream = 32;

void euler(const Noising& noising, const SamplerOptions& options, Denoise denoise, std::span<float> x) {
  const std::vector<double> levels = sampler_levels(options);
  std::vector<float> velocity(x.size());
  for (size_t i = 0; i + 1 < levels.size(); ++i) {
    denoise(x, noising.at(levels[i]).time, velocity);
    const auto step = static_cast<float>(levels[i + 1] - levels[i]);
    for (size_t j = 0; j < x.size(); ++j) x[j] += step * velocity[j];
  }
}

/// The steps of training that are visited, the noisiest first; -1 ends it.
std::vector<int> visited_steps(int64_t count) {
  std::vector<int> steps;
  const auto stride = static_cast<double>(Noising::kSteps) / static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i)
    steps.push_back(Noising::kSteps - 1 - static_cast<int>(std::lround(static_cast<double>(i) * stride)));
  steps.push_back(-1);
  return steps;
}

/// x and a prediction of epsilon or v as picture and noise.
struct Parts {
  float signal, noise;
  bool is_v;
  float picture(float x, float prediction) const {
    return is_v ? signal * x - noise * prediction : (x - noise * prediction) / signal;
  }
  float epsilon(float x, float prediction) const {
    return is_v ? noise * x + signal * prediction : prediction;
  }
};
Parts parts_at(const Noising& noising, int step) {
  const double variance = noising.signal_variance(step);
  return {.signal = static_cast<float>(std::sqrt(variance)),
          .noise = static_cast<float>(std::sqrt(1 - variance)),
          .is_v = noising.options().objective == recipe::Objective::v};
}

void ddim(const Noising& noising, const SamplerOptions& options, Denoise denoise, std::span<float> x) {
  const std::vector<int> steps = visited_steps(options.steps);
  std::vector<float> prediction(x.size());
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    denoise(x, steps[i], prediction);
    const Parts here = parts_at(noising, steps[i]), next = parts_at(noising, steps[i + 1]);
    for (size_t j = 0; j < x.size(); ++j) {
      const float picture = here.picture(x[j], prediction[j]);
      x[j] = next.signal * picture + next.noise * here.epsilon(x[j], prediction[j]);
    }
  }
}

/// Half the logarithm of the signal-to-noise ratio.
double log_snr(const Parts& parts) { return std::log(parts.signal) - std::log(parts.noise); }

void dpm(const Noising& noising, const SamplerOptions& options, Denoise denoise, std::span<float> x) {
  const std::vector<int> steps = visited_steps(options.steps);
  std::vector<float> prediction(x.size()), picture(x.size()), before(x.size());
  std::optional<double> last_stride;
  for (size_t i = 0; i + 1 < steps.size(); ++i) {
    denoise(x, steps[i], prediction);
    const Parts here = parts_at(noising, steps[i]), next = parts_at(noising, steps[i + 1]);
    for (size_t j = 0; j < x.size(); ++j) picture[j] = here.picture(x[j], prediction[j]);
    // The last step, to no noise, is of order 1: its stride is infinite.
    const bool is_last = steps[i + 1] < 0;
    const double stride = is_last ? 0 : log_snr(next) - log_snr(here);
    const auto along = static_cast<float>(!is_last && last_stride ? stride / (2 * *last_stride) : 0);
    const auto kept = static_cast<float>(is_last ? 0 : next.noise / here.noise);
    const auto gained = static_cast<float>(is_last ? 1 : -next.signal * std::expm1(-stride));
    for (size_t j = 0; j < x.size(); ++j)
      x[j] = kept * x[j] + gained * (picture[j] + along * (picture[j] - before[j]));
    before.swap(picture);
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
