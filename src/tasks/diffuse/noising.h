#pragma once

#include "base/philox.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// Coefficients for an image x0 and noise n at one noise level. The denoiser's input is signal * x0 + noise *
/// n at timestep `time` (0 to 1000); its target is target_signal * x0 + target_noise * n.
struct NoiseCoefficients {
  double signal = 1, noise = 0;
  double target_signal = 0, target_noise = 1;
  double time = 0;
  double weight = 1;  ///< weight of the loss
};

/// Noise schedule of training: prediction target, distribution of noise levels, and loss weighting. A noise
/// level is in [0, 1], where 0 is the image and 1 pure noise. In flow matching it is sigma. For epsilon and v
/// it is timestep / 1000 of DDPM, whose betas rise linearly from 1e-4 to 0.02.
class Noising {
 public:
  static constexpr int kSteps = 1000;

  /// `objective`: flow, epsilon or v.
  explicit Noising(recipe::Objective objective, recipe::Diffuse options = {});

  recipe::Objective objective() const { return objective_; }
  const recipe::Diffuse& options() const { return options_; }
  bool is_flow() const { return objective_ == recipe::Objective::flow; }
  /// Draws a random noise level for training. `num_tokens`: number of tokens of the image, for
  /// NoiseSampling::flux_shift.
  double draw(PhiloxSequence& random, int64_t num_tokens) const;
  /// Returns the coefficients at a noise level.
  NoiseCoefficients at(double level) const;
  /// Returns alpha bar of DDPM, the fraction of the variance that comes from the image at a timestep (epsilon
  /// and v only); 1 for step -1.
  double signal_variance(int step) const;

 private:
  /// Returns the weight of the loss at a noise level.
  double weight(double level, double signal_to_noise) const;

  recipe::Objective objective_;
  recipe::Diffuse options_;
  std::array<double, kSteps> variances_;
};

/// Returns FLUX.1's timestep shift for an image of num_tokens tokens: exp(mu), where mu rises linearly from
/// 0.5 at 256 tokens to 1.15 at 4096 tokens.
double flux_shift(int64_t num_tokens);
/// Returns FLUX.2's timestep shift for an image of `num_tokens` tokens and a sampler of `num_steps` steps:
/// interpolates its authors' formulas for 10 and 200 steps.
double flux2_shift(int64_t num_tokens, int64_t num_steps);
/// Returns `sigma` shifted towards noise (timestep shift, Esser et al. 2024, arXiv 2403.03206, equation 23);
/// unchanged if shift = 1.
double shifted(double sigma, double shift);

}  // namespace hearth::tasks
