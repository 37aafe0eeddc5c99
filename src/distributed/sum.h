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

/// Computes to[i] = 0 + the sum over all r of from[r][i], in f32 in the order described above. `dtype` (f32
/// or bf16) is the dtype of `from` and `to`; `to` may be one of `from`.
void sum_in_order(DType dtype, std::span<const std::byte* const> from, std::byte* to, int64_t count);

}  // namespace hearth::distributed
