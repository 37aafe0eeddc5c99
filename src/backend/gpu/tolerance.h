#pragma once

#include <cmath>
#include <cstdint>

#include "base/dtype.h"

namespace hearth::gpu {

/// Allowed difference between a number and its expected value.
struct Tolerance {
  double absolute = 0;
  double relative = 0;

  /// Returns the allowed distance from `want`.
  double around(double want) const { return absolute + relative * std::fabs(want); }
  /// True if `got` is within the tolerance of `want`; two NaNs agree.
  bool allows(double got, double want) const {
    return got == want || std::fabs(got - want) <= around(want) || (std::isnan(got) && std::isnan(want));
  }
};

/// Returns the tolerance between two correct sums of products, which may add their terms in any order in f32
/// and are then rounded to `out`. `term`: typical magnitude of a product. A sum that lacks one term exceeds
/// the tolerance.
inline Tolerance sum_tolerance(int64_t num_terms, double term, DType out) {
  const double rounding = out == DType::bf16 ? 0x1p-7 : out == DType::f16 ? 0x1p-10 : 0x1p-23;
  return {.absolute = 0x1p-19 * term * static_cast<double>(num_terms), .relative = rounding};
}

}  // namespace hearth::gpu
