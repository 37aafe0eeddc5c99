#pragma once

#include <cmath>
#include <cstdint>

#include "base/dtype.h"

namespace hearth::gpu {

/// How far a number may be from the right one.
struct Tolerance {
  double absolute = 0;
  double relative = 0;

  double around(double want) const { return absolute + relative * std::fabs(want); }
  bool allows(double got, double want) const {
    return got == want || std::fabs(got - want) <= around(want) || (std::isnan(got) && std::isnan(want));
  }
};

/// Between two right sums of products: each may add its terms in an order of its own, in f32, and is then
/// rounded to `out`. `term` is a usual product; a sum that lacks one is not within it.
inline Tolerance sum_tolerance(int64_t num_terms, double term, DType out) {
  const double rounding = out == DType::bf16 ? 0x1p-7 : out == DType::f16 ? 0x1p-10 : 0x1p-23;
  return {.absolute = 0x1p-19 * term * static_cast<double>(num_terms), .relative = rounding};
}

}  // namespace hearth::gpu
