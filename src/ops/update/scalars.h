#pragma once

#include <cmath>

#include "ir/attrs.h"
#include "ops/formula.h"

/// Arithmetic of scalar ops, written once for CPU kernels, GPU kernels and the float64 reference.
namespace hearth::ops {

/// Dynamic loss scaling, as torch.amp.GradScaler: multiplies the scale by `growth` after `interval` good
/// steps, and by `backoff` after a skipped step.
struct LossScale {
  double interval;
  double growth;
  double backoff;
};
LossScale loss_scale_of(const ir::Attrs& attrs);

/// Returns the count after a step; skipped steps do not count.
template <typename T>
HEARTH_FORMULA T next_count(T count, T factor) {
  return factor < 0 ? count : count + 1;
}

/// Returns the factor of the gradients: the inverse loss scale, times max_norm / norm where the norm is
/// larger; -1 (skip the step) if the sum of squares is not finite. max_norm 0: no clipping.
template <typename T>
HEARTH_FORMULA T gradient_factor(T sum_squares, T inverse_scale, double max_norm) {
  if (!std::isfinite(sum_squares)) return -1;
  if (max_norm <= 0) return inverse_scale;
  const double norm = std::sqrt(static_cast<double>(sum_squares)) * static_cast<double>(inverse_scale);
  const double factor = max_norm / (norm + 1e-6);
  return static_cast<T>(static_cast<double>(inverse_scale) * (factor < 1 ? factor : 1.0));
}

/// Computes {scale, good steps, skipped steps} after a step; `out` may be `state`.
template <typename T>
HEARTH_FORMULA void next_loss_scale(const LossScale& rule, T factor, const T* state, T* out) {
  const T scale = state[0], good = state[1], skips = state[2];
  const bool skipped = factor < 0;
  const bool grows = !skipped && static_cast<double>(good) + 1 >= rule.interval;
  out[0] = scale * static_cast<T>(skipped ? rule.backoff : grows ? rule.growth : 1.0);
  out[1] = skipped || grows ? 0 : good + 1;
  out[2] = skipped ? skips + 1 : skips;
}

/// Returns factor * scale, or 1 / scale if `inverse`.
template <typename T>
HEARTH_FORMULA T read_loss_scale(T scale, T factor, bool inverse) {
  return inverse ? 1 / scale : factor * scale;
}

}  // namespace hearth::ops
