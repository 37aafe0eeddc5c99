#pragma once

#include <cmath>

#include "base/formula.h"
#include "ir/attrs.h"

/// Arithmetic of scalar ops, written once for CPU kernels, GPU kernels and the float64 reference.
namespace hearth::ops {

/// Attributes of dynamic loss scaling, as in torch.amp.GradScaler: the scale is multiplied by `growth` after
/// `interval` consecutive steps with finite gradients, and by `backoff` after a skipped step.
struct LossScale {
  double interval;
  double growth;
  double backoff;
};
LossScale loss_scale_of(const ir::Attrs& attrs);

/// Returns the step count after a step; a skipped step (factor < 0) does not count.
template <typename T>
HEARTH_FORMULA T next_count(T count, T factor) {
  return factor < 0 ? count : count + 1;
}

/// Returns the factor by which gradients are multiplied: the inverse loss scale, times max_norm / norm if the
/// gradient norm is above max_norm (0: no clipping). Returns -1, which skips the step, if sum_squares is not
/// finite.
template <typename T>
HEARTH_FORMULA T gradient_factor(T sum_squares, T inverse_scale, double max_norm) {
  if (!std::isfinite(sum_squares)) return -1;
  if (max_norm <= 0) return inverse_scale;
  const double norm = std::sqrt(static_cast<double>(sum_squares)) * static_cast<double>(inverse_scale);
  const double factor = max_norm / (norm + 1e-6);
  return static_cast<T>(static_cast<double>(inverse_scale) * (factor < 1 ? factor : 1.0));
}

/// Computes the state {scale, consecutive finite steps, skipped steps} after a step with this factor; `out`
/// may be `state`.
template <typename T>
HEARTH_FORMULA void next_loss_scale(const LossScale& rule, T factor, const T* state, T* out) {
  const T scale = state[0], good = state[1], skips = state[2];
  const bool skipped = factor < 0;
  const bool grows = !skipped && static_cast<double>(good) + 1 >= rule.interval;
  out[0] = scale * static_cast<T>(skipped ? rule.backoff : grows ? rule.growth : 1.0);
  out[1] = skipped || grows ? 0 : good + 1;
  out[2] = skipped ? skips + 1 : skips;
}

/// Returns 1 / scale if `inverse`, otherwise factor * scale.
template <typename T>
HEARTH_FORMULA T read_loss_scale(T scale, T factor, bool inverse) {
  return inverse ? 1 / scale : factor * scale;
}

}  // namespace hearth::ops
