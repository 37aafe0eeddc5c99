#pragma once

#include <cstdint>

#include "base/formula.h"

/// Modified Gram-Schmidt with reorthogonalization on the columns of a tall matrix [n, r]: each column is
/// orthogonalized against the earlier ones twice, which removes the rounding errors of the first pass
/// (Giraud, Langou and Rozloznik 2005).
namespace hearth::ops {

/// Minimum share of a column's squared norm that must remain after the first pass; otherwise the column is
/// treated as linearly dependent on the earlier columns.
inline constexpr float kMinRemainingNorm = 1e-10F;
/// Orthogonalization passes per column.
inline constexpr int kNumPasses = 2;

/// Returns an element, in [-1, 1), of the pseudorandom column that replaces a linearly dependent column (a
/// hash by the finalizer of MurmurHash3).
HEARTH_FORMULA inline float replacement_element(int64_t row, int64_t column) {
  auto x = static_cast<uint32_t>(row * 31 + column + 1) * 0x9e3779b9U;
  x = (x ^ x >> 16) * 0x85ebca6bU;
  x = (x ^ x >> 13) * 0xc2b2ae35U;
  x ^= x >> 16;
  return static_cast<float>(x) * 0x1p-31F - 1;
}

}  // namespace hearth::ops
