#pragma once

#include <cmath>
#include <cstdint>

#include "ops/formula.h"

namespace hearth::ops {

/// Arithmetic of dpo_loss for one pair. In double, because it subtracts large log-probabilities of similar
/// size.
struct DpoFormula {
  double beta, smoothing;

  /// Returns beta times the log-ratio margin: how much more than the reference the policy prefers the chosen
  /// answer.
  template <typename T>
  HEARTH_FORMULA double margin(const T* logps, const T* reference, int64_t pair) const {
    return beta * (gain(logps, reference, 2 * pair) - gain(logps, reference, 2 * pair + 1));
  }
  HEARTH_FORMULA double loss(double x) const {
    const double rest = std::log1p(std::exp(-std::fabs(x)));
    return (1 - smoothing) * (x < 0 ? -x : 0.0) + smoothing * (x > 0 ? x : 0.0) + rest;
  }
  /// Returns the derivative of the loss with respect to the log-probability of the chosen answer.
  HEARTH_FORMULA double slope(double x) const { return beta * (1 / (1 + std::exp(-x)) - (1 - smoothing)); }

 private:
  template <typename T>
  HEARTH_FORMULA static double gain(const T* logps, const T* reference, int64_t row) {
    return static_cast<double>(logps[row]) - static_cast<double>(reference[row]);
  }
};

}  // namespace hearth::ops
