#include "tasks/diffuse/noising.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace hearth::tasks {
namespace {

using recipe::NoiseSampling;
using recipe::NoiseWeighting;

constexpr double kFirstBeta = 1e-4, kLastBeta = 0.02;
/// Min sigma for the loss weight 1 / sigma^2, which would otherwise be unbounded.
constexpr double kMinSigma = 1e-3;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

double flux_shift(int64_t num_tokens) {
  constexpr double kSlope = (1.15 - 0.5) / (4096 - 256);
  return std::exp(0.5 + kSlope * static_cast<double>(num_tokens - 256));
}

double flux2_shift(int64_t num_tokens, int64_t num_steps) {
  constexpr int64_t kManyTokens = 4300;
  const auto tokens = static_cast<double>(num_tokens);
  const double after_200 = 0.00016927 * tokens + 0.45666666;
  if (num_tokens > kManyTokens) return std::exp(after_200);
  const double after_10 = 8.73809524e-05 * tokens + 1.89833333;
  const double share = static_cast<double>(num_steps - 10) / 190;
  return std::exp(after_10 + share * (after_200 - after_10));
}

double shifted(double sigma, double shift) { return shift * sigma / (1 + (shift - 1) * sigma); }

Noising::Noising(recipe::Objective objective, recipe::Diffuse options)
    : objective_(objective), options_(std::move(options)), variances_() {
  double alpha_bar = 1;
  for (int i = 0; i < kSteps; ++i) {
    alpha_bar *= 1 - (kFirstBeta + (kLastBeta - kFirstBeta) * i / (kSteps - 1));
    variances_[static_cast<size_t>(i)] = alpha_bar;
  }
}

double Noising::signal_variance(int step) const {
  return step < 0 ? 1 : variances_[static_cast<size_t>(step)];
}

double Noising::draw(PhiloxSequence& random, int64_t num_tokens) const {
  const double u = random.uniform();
  if (!is_flow()) return u;
  const double normal = random.normal();
  switch (options_.sampling) {
    case NoiseSampling::uniform:
      return u;
    case NoiseSampling::mode: {
      const double cosine = std::cos(std::numbers::pi / 2 * u);
      return std::clamp(1 - u - options_.mode_scale * (cosine * cosine - 1 + u), 0.0, 1.0);
    }
    case NoiseSampling::logit_normal:
      return sigmoid(options_.mean + options_.std * normal);
    case NoiseSampling::sigmoid:
      return sigmoid(options_.std * normal);
    case NoiseSampling::shift:
      return shifted(sigmoid(options_.std * normal), options_.shift);
    case NoiseSampling::flux_shift:
      return shifted(sigmoid(options_.std * normal), flux_shift(num_tokens));
  }
  HEARTH_CHECK(false);
}

double Noising::weight(double level, double signal_to_noise) const {
  switch (options_.weighting) {
    case NoiseWeighting::none:
      return 1;
    case NoiseWeighting::sigma_sqrt: {
      const double sigma = std::max(level, kMinSigma);
      return 1 / (sigma * sigma);
    }
    case NoiseWeighting::cosmap:
      return 2 / (std::numbers::pi * (1 - 2 * level + 2 * level * level));
    // Min-SNR-gamma, Hang et al. 2023, arXiv 2303.09556.
    case NoiseWeighting::min_snr: {
      const double clipped_snr = std::min(signal_to_noise, options_.min_snr);
      return objective_ == recipe::Objective::v ? clipped_snr / (signal_to_noise + 1)
                                                : clipped_snr / signal_to_noise;
    }
  }
  HEARTH_CHECK(false);
}

NoiseCoefficients Noising::at(double level) const {
  if (is_flow()) {
    return {.signal = 1 - level,
            .noise = level,
            .target_signal = -1,
            .target_noise = 1,
            .time = kSteps * level,
            .weight = weight(level, 0)};
  }
  const int step = std::min(static_cast<int>(level * kSteps), kSteps - 1);
  const double variance = signal_variance(step);
  const double signal = std::sqrt(variance), noise = std::sqrt(1 - variance);
  const bool is_v = objective_ == recipe::Objective::v;
  return {.signal = signal,
          .noise = noise,
          .target_signal = is_v ? -noise : 0,
          .target_noise = is_v ? signal : 1,
          .time = static_cast<double>(step),
          .weight = weight(level, variance / (1 - variance))};
}

}  // namespace hearth::tasks
