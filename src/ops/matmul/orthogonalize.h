#pragma once

#include <cstdint>

#include "ops/formula.h"

/// Gram-Schmidt on the columns of a tall matrix [n, r], each against those before it, twice: what rounding
/// leaves of the first time goes in the second (Giraud, Langou and Rozloznik 2005).
namespace hearth::ops {

/// A column of which less than this part of its squares is left has no direction of its own.
inline constexpr float kLeastLeft = 1e-10F;
inline constexpr int kNumPasses = 2;

/// Element of the fixed column, from -1 to below 1, that stands in for one without a direction (the finalizer
/// of MurmurHash3).
HEARTH_FORMULA inline float stand_in(int64_t row, int64_t column) {
  auto x = static_cast<uint32_t>(row * 31 + column + 1) * 0x9e3779b9U;
  x = (x ^ x >> 16) * 0x85ebca6bU;
  x = (x ^ x >> 13) * 0xc2b2ae35U;
  x ^= x >> 16;
  return static_cast<float>(x) * 0x1p-31F - 1;
}

}  // namespace hearth::ops
