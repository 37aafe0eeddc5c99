#pragma once

#include <cmath>

#include "base/formula.h"
#include "ops/update/adam_options.h"

/// Update rules of the optimizers for one element of a weight, shared by CPU and GPU kernels. Values that are
/// equal for all elements in a step are computed once per step, in double where PyTorch does so.
namespace hearth::ops {

/// Update rule of torch.optim.SGD with dampening 0.
struct SgdRule {
  float momentum;
  float weight_decay;
  bool nesterov;
  float rate;
  float factor;

  HEARTH_FORMULA void move(float grad, float& param) const {
    param -= rate * (factor * grad + weight_decay * param);
  }
  /// Updates with momentum: the direction is buffer (heavy ball) or g + momentum * buffer (Nesterov),
  /// computed as one weighted sum of both.
  HEARTH_FORMULA void move(float grad, float& param, float& buffer) const {
    const float of_gradient = nesterov ? 1.0F : 0.0F, of_buffer = nesterov ? momentum : 1.0F;
    const float g = factor * grad + weight_decay * param;
    const float b = momentum * buffer + g;
    buffer = b;
    param -= rate * (of_gradient * g + of_buffer * b);
  }
};
SgdRule sgd_rule(const ir::Attrs& attrs);

/// Constants of one AdamW step t.
struct AdamStep {
  float decay_factor;  ///< 1 - lr weight_decay
  float one_beta1;     ///< 1 - beta1
  float beta2;
  float one_beta2;     ///< 1 - beta2
  float rate;          ///< lr / (1 - beta1^t)
  float inverse_root;  ///< 1 / sqrt(1 - beta2^t)
  float eps;
  float factor;

  HEARTH_FORMULA void move(float grad, float& param, float& m, float& v) const {
    const float g = factor * grad;
    const float new_m = m + one_beta1 * (g - m);
    const float new_v = beta2 * v + one_beta2 * g * g;
    m = new_m;
    v = new_v;
    param = decay_factor * param - rate * (new_m / (std::sqrt(new_v) * inverse_root + eps));
  }
};
/// Returns the constants of step t = `count`, which starts at 1.
HEARTH_FORMULA inline AdamStep adam_step(const AdamOptions& options, double lr, float factor, double count) {
  return {.decay_factor = static_cast<float>(1 - lr * options.weight_decay),
          .one_beta1 = static_cast<float>(1 - options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .one_beta2 = static_cast<float>(1 - options.beta2),
          .rate = static_cast<float>(lr / (1 - std::pow(options.beta1, count))),
          .inverse_root = static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, count))),
          .eps = static_cast<float>(options.eps),
          .factor = factor};
}

/// Returns the weight of the new value in an exponential moving average at update `count`: the larger of 1 -
/// decay (one_decay) and 9 / (10 + count), so that early averages do not depend long on the initial value (as
/// num_updates of TensorFlow's ExponentialMovingAverage).
HEARTH_FORMULA inline float ema_weight(float one_decay, float count) {
  const float early = 9.0F / (10.0F + count);
  return one_decay > early ? one_decay : early;
}

/// Returns the rounding error of a gradient `whole` that was rounded to bf16 as `sent`; it is added to the
/// next gradient (error feedback, arXiv 1901.09847). 0 if the error is not finite, because all later errors
/// would not be finite either.
HEARTH_FORMULA inline float rounding_error(float whole, float sent) {
  return std::isfinite(whole - sent) ? whole - sent : 0.0F;
}

/// Number of elements whose 8-bit moments share a scale.
inline constexpr int kBlock8Bit = 256;
/// Constants of one step t of AdamW with 8-bit moments. As in bitsandbytes, weight decay is applied after the
/// update, and eps is added before the bias correction of v.
struct Adam8Step {
  float beta1, one_beta1, beta2, one_beta2;
  float factor;
  float rate;          ///< lr * correction / (1 - beta1^t), correction = sqrt(1 - beta2^t)
  float eps;           ///< eps * correction
  float decay_factor;  ///< 1 - lr weight_decay

  HEARTH_FORMULA void move_moments(float grad, float& m, float& v) const {
    const float g = factor * grad;
    m = beta1 * m + one_beta1 * g;
    v = beta2 * v + one_beta2 * g * g;
  }
  HEARTH_FORMULA void move(float m, float v, float& param) const {
    param = decay_factor * (param - rate * (m / (std::sqrt(v) + eps)));
  }
};
HEARTH_FORMULA inline Adam8Step adam8_step(const AdamOptions& options, double lr, float factor,
                                           double count) {
  const double correction = std::sqrt(1 - std::pow(options.beta2, count));
  return {.beta1 = static_cast<float>(options.beta1),
          .one_beta1 = static_cast<float>(1 - options.beta1),
          .beta2 = static_cast<float>(options.beta2),
          .one_beta2 = static_cast<float>(1 - options.beta2),
          .factor = factor,
          .rate = static_cast<float>(lr * correction / (1 - std::pow(options.beta1, count))),
          .eps = static_cast<float>(options.eps * correction),
          .decay_factor = static_cast<float>(1 - lr * options.weight_decay)};
}

/// Update rule of Lion (arXiv 2302.06675): the direction is the sign of beta1 m + (1 - beta1) g, where the
/// stored momentum m is an average with beta2.
struct LionRule {
  double weight_decay;
  float beta1;
  float beta2;
  float decay_factor;  ///< 1 - lr weight_decay
  float rate;
  float factor;

  HEARTH_FORMULA void begin(float lr, float gradient_factor) {
    decay_factor = static_cast<float>(1 - static_cast<double>(lr) * weight_decay);
    rate = lr;
    factor = gradient_factor;
  }
  HEARTH_FORMULA void move(float grad, float& param, float& m) const {
    const float g = factor * grad;
    const float direction = beta1 * m + (1 - beta1) * g;
    const float sign = direction > 0 ? 1.0F : direction < 0 ? -1.0F : 0.0F;
    m = beta2 * m + (1 - beta2) * g;
    param = decay_factor * param - rate * sign;
  }
};
LionRule lion_rule(const ir::Attrs& attrs);

/// Attributes of Adafactor (arXiv 1804.04235), as in torch.optim.Adafactor.
struct AdafactorOptions {
  double beta2_decay;
  double eps1;
  double eps2;
  double clip;
  double weight_decay;
};
AdafactorOptions adafactor_options(const ir::Attrs& attrs);
/// Constants of one Adafactor step t.
struct AdafactorStep {
  double factor;
  double weight;        ///< weight of the new squared gradient in the second moment
  double decay_factor;  ///< 1 - lr weight_decay
  double floor;         ///< minimum second moment
  double rate;          ///< min(lr, 1 / sqrt(t)); multiplied later by the root mean square of the weight
};
HEARTH_FORMULA inline AdafactorStep adafactor_step(const AdafactorOptions& options, double lr, double factor,
                                                   double count) {
  const double max_rate = 1 / std::sqrt(count);
  return {.factor = factor,
          .weight = std::pow(count, options.beta2_decay),
          .decay_factor = 1 - lr * options.weight_decay,
          .floor = options.eps1 * options.eps1,
          .rate = lr < max_rate ? lr : max_rate};
}

/// Attributes and constants of Muon (Jordan et al. 2024): in kSteps steps, the polynomial a x + b x^3 + c x^5
/// moves the singular values of the direction close to 1.
struct MuonOptions {
  static constexpr int kSteps = 5;
  static constexpr float kA = 3.4445F, kB = -4.7750F, kC = 2.0315F;
  double momentum;
  bool nesterov;
  double weight_decay;
  double eps;
  double ratio;  ///< factor of the learning rate, which depends on the weight's shape

  HEARTH_FORMULA static void move(float g, float momentum, float& buffer) {
    buffer += (1 - momentum) * (g - buffer);
  }
  HEARTH_FORMULA static float nesterov_direction(float g, float momentum, float buffer) {
    return g + momentum * (buffer - g);
  }
};
MuonOptions muon_options(const ir::Attrs& attrs, int64_t rows, int64_t columns);

}  // namespace hearth::ops
