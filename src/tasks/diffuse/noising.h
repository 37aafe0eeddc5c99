#pragma once

#include "base/philox.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// A picture x0 and noise n at one level: the denoiser sees signal * x0 + noise * n at `time` (0 to 1000),
/// and predicts target_signal * x0 + target_noise * n.
struct Noised {
  double signal = 1, noise = 0;
  double target_signal = 0, target_noise = 1;
  double time = 0;
  double weight = 1;  ///< of its loss
};

struct NoisingOptions {
  recipe::Objective objective = recipe::Objective::flow;
  recipe::NoiseSampling sampling = recipe::NoiseSampling::sigmoid;
  double mean = 0, std = 1, shift = 3, mode_scale = 1.29;
  recipe::NoiseWeighting weighting = recipe::NoiseWeighting::none;
  double min_snr = 5;
};

/// How training mixes pictures with noise. A level is from 0, the picture, to 1, noise: sigma itself in flow
/// matching; the share of 1000 steps, whose variances rise from 1e-4 to 0.02, with epsilon and v.
class Noising {
 public:
  static constexpr int kSteps = 1000;

  explicit Noising(const NoisingOptions& options);

  const NoisingOptions& options() const { return options_; }
  bool is_flow() const { return options_.objective == recipe::Objective::flow; }
  /// A level for training, of a picture of so many tokens.
  double draw(PhiloxSequence& random, int64_t num_tokens) const;
  Noised at(double level) const;
  /// epsilon, v: what is left of the picture's variance after a step; step -1: all of it.
  double signal_variance(int step) const;

 private:
  double weight(double level, double signal_to_noise) const;

  NoisingOptions options_;
  std::array<double, kSteps> variances_;
};

/// The shift of FLUX for a picture of so many tokens, exp(mu), mu linear from 0.5 at 256 to 1.15 at 4096.
double flux_shift(int64_t num_tokens);
/// That of FLUX.2 for a sampler of so many steps, fitted by its makers for 10 and 200 steps.
double flux2_shift(int64_t num_tokens, int64_t num_steps);
/// A sigma moved towards noise (Esser et al. 2024, arXiv 2403.03206, equation 23); 1: as it is.
double shifted(double sigma, double shift);

}  // namespace hearth::tasks
