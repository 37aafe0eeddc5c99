#pragma once

#include <cmath>
#include <cstdint>

#include "base/formula.h"

namespace hearth::ops {

/// Arithmetic of dpo_loss for one pair of answers {chosen, rejected}. Uses double, because it subtracts large
/// log-probabilities of similar size.
struct DpoFormula {
  double beta, smoothing;

  /// Returns beta times the margin of the log-ratios: log(policy / reference) of the chosen answer minus that
  /// of the rejected answer. Log-probabilities of pair i are elements 2 i (chosen) and 2 i + 1.
  template <typename T>
  HEARTH_FORMULA double margin(const T* logps, const T* reference, int64_t pair) const {
    return beta * (gain(logps, reference, 2 * pair) - gain(logps, reference, 2 * pair + 1));
  }
  HEARTH_FORMULA double loss(double x) const {
    const double rest = std::log1p(std::exp(-std::fabs(x)));
    return (1 - smoothing) * (x < 0 ? -x : 0.0) + smoothing * (x > 0 ? x : 0.0) + rest;
  }
  /// Returns the derivative of the loss with respect to the policy's log-probability of the chosen answer,
  /// for margin x.
  HEARTH_FORMULA double slope(double x) const { return beta * (1 / (1 + std::exp(-x)) - (1 - smoothing)); }

 private:
  template <typename T>
  HEARTH_FORMULA static double gain(const T* logps, const T* reference, int64_t row) {
    return static_cast<double>(logps[row]) - static_cast<double>(reference[row]);
  }
};

}  // namespace hearth::ops
