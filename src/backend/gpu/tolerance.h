#pragma once

#include <cmath>
#include <cstdint>

#include "base/dtype.h"

namespace hearth::gpu {

/// Allowed distance of a number from the expected one.
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

/// Tolerance between two correct sums of products: each may add its terms in any order, in f32, and is then
/// rounded to `out`. `term` is the typical magnitude of a product; a sum that misses one term is not within
/// the tolerance.
inline Tolerance sum_tolerance(int64_t num_terms, double term, DType out) {
  const double rounding = out == DType::bf16 ? 0x1p-7 : out == DType::f16 ? 0x1p-10 : 0x1p-23;
  return {.absolute = 0x1p-19 * term * static_cast<double>(num_terms), .relative = rounding};
}

}  // namespace hearth::gpu
