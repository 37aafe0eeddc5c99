#pragma once

#include "base/philox.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// Coefficients of an image x0 and noise n at one level: the denoiser's input is signal * x0 + noise * n at
/// timestep `time` (0 to 1000), its target is target_signal * x0 + target_noise * n.
struct NoiseCoefficients {
  double signal = 1, noise = 0;
  double target_signal = 0, target_noise = 1;
  double time = 0;
  double weight = 1;  ///< of the loss
};

/// Noise schedule of training: the prediction target, the distribution of levels with its parameters, and the
/// weights of losses.
struct NoisingOptions {
  recipe::Objective objective = recipe::Objective::flow;
  recipe::NoiseSampling sampling = recipe::NoiseSampling::sigmoid;
  double mean = 0, std = 1, shift = 3, mode_scale = 1.29;
  recipe::NoiseWeighting weighting = recipe::NoiseWeighting::none;
  double min_snr = 5;
};

/// Noise schedule of training. A level is in [0, 1], from the image to pure noise: sigma in flow matching;
/// with epsilon and v the share of 1000 timesteps, whose betas rise linearly from 1e-4 to 0.02 (DDPM).
class Noising {
 public:
  static constexpr int kSteps = 1000;

  explicit Noising(const NoisingOptions& options);

  const NoisingOptions& options() const { return options_; }
  bool is_flow() const { return options_.objective == recipe::Objective::flow; }
  /// Draws a level for training. `num_tokens`: tokens of the image, for flux_shift.
  double draw(PhiloxSequence& random, int64_t num_tokens) const;
  /// Returns the coefficients at a level.
  NoiseCoefficients at(double level) const;
  /// Returns the share of the image's variance after a timestep (alpha bar of DDPM; epsilon and v only); 1
  /// for step -1.
  double signal_variance(int step) const;

 private:
  /// Returns the weight of the loss at a level.
  double weight(double level, double signal_to_noise) const;

  NoisingOptions options_;
  std::array<double, kSteps> variances_;
};

/// Returns FLUX.1's shift of the sigmas for an image of N tokens: exp(mu), mu linear from 0.5 at 256 to 1.15
/// at 4096 tokens.
double flux_shift(int64_t num_tokens);
/// Returns FLUX.2's shift for a sampler of `num_steps` steps, from its authors' fits at 10 and 200 steps.
double flux2_shift(int64_t num_tokens, int64_t num_steps);
/// Returns a sigma shifted towards noise (Esser et al. 2024, arXiv 2403.03206, equation 23); unchanged for
/// shift 1.
double shifted(double sigma, double shift);

}  // namespace hearth::tasks
