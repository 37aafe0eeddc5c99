#pragma once

#include <cmath>
#include <cstdint>

#include "base/formula.h"
#include "ir/attrs.h"

namespace hearth::ops {

/// Arithmetic of timestep_embedding; the angle is rounded to f32 before the sinusoid.
struct TimestepFormula {
  explicit TimestepFormula(const ir::Attrs& attrs)
      : half(attrs.integer("size") / 2),
        cos_first(attrs.integer_or("cos_first", 1) != 0),
        log_period(static_cast<float>(std::log(attrs.real_or("max_period", 10000)))),
        steps(static_cast<float>(half - attrs.integer_or("shift", 0))) {}

  int64_t half;  ///< number of frequencies
  bool cos_first;
  float log_period, steps;

  /// Returns element `index` of the embedding of timestep t.
  HEARTH_FORMULA double element(float t, int64_t index) const {
    if (index >= 2 * half) return 0;
    const int64_t i = index % half;
    const float exponent = -log_period * static_cast<float>(i) / steps;
    const float frequency = static_cast<float>(std::exp(static_cast<double>(exponent)));
    const auto angle = static_cast<double>(t * frequency);
    return (index < half) == cos_first ? std::cos(angle) : std::sin(angle);
  }
};

}  // namespace hearth::ops
