#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace hearth::distributed {

/// The order in which contributions 0 .. n - 1 are added up: the first 2^k of them, 2^k the largest power of
/// two below n, apart from the rest, and each of both likewise. Sums over 2^k neighbors from a multiple of
/// 2^k on are parts of it, whoever makes them: results do not depend on how many do.
/// Returns how many of `count` (2 at least) are in the first part.
constexpr int64_t first_part(int64_t count) {
  int64_t part = 1;
  while (2 * part < count) part *= 2;
  return part;
}

/// to[i] = 0 + the sum over all of from[r][i] in that order, in f32; `from` has f32 or bf16, and `to` the
/// same. `to` may be one of `from`.
void sum_in_order(DType dtype, std::span<const std::byte* const> from, std::byte* to, int64_t count);

}  // namespace hearth::distributed
