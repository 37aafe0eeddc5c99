#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace hearth::distributed {

/// Contributions 0 .. n - 1 are summed in the order of a fixed binary tree: the first 2^k (the largest power
/// of two below n) and the rest are summed separately, each recursively, and then added. The sum of an
/// aligned range of 2^k contributions is a subtree, so it has the same bits whichever worker computes it, and
/// results do not depend on the number of workers.
/// Returns the size of the first part, for `count` >= 2.
constexpr int64_t first_part(int64_t count) {
  int64_t part = 1;
  while (2 * part < count) part *= 2;
  return part;
}

/// Returns the dtype in which sums of contributions in `dtype` are stored: bf16 for E5M2, whose 2 mantissa
/// bits would round off more of the sum than error feedback returns; otherwise `dtype`.
DType sum_dtype(DType dtype);
/// Computes to[i] = 0 + the sum over all r of from[r][i], in f32 in the order described above. `from` is in
/// `dtype` (f32, bf16 or f8_e5m2) and `to` in sum_dtype(dtype); `to` may be one of `from` if these are equal.
void sum_in_order(DType dtype, std::span<const std::byte* const> from, std::byte* to, int64_t count);

}  // namespace hearth::distributed
