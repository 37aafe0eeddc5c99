#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/choices.h"
#include "base/formula.h"

namespace hearth {

/// Formats of ggml that store blocks of kBlockElements adjacent elements of a row as integer codes with one
/// f16 scale: value = scale * (code - offset).
///   q4_0: codes of 4 bits, offset 8; the element with the largest magnitude has code 0
///   q8_0: signed codes of 8 bits, no offset; the largest magnitude is 127
/// Codes and scales have the same bits as those of ggml (quantize_row_q4_0_ref, quantize_row_q8_0_ref).
enum class BlockFormat : uint8_t { none, q4_0, q8_0 };
/// The empty name selects no format.
template <>
inline constexpr auto kNames<BlockFormat> = std::to_array<std::string_view>({"", "q4_0", "q8_0"});

/// Number of elements per block.
inline constexpr int64_t kBlockElements = 32;

/// Returns the first element of a block with the largest magnitude.
inline float extreme_of(const float* block) {
  float largest = 0;
  for (int64_t i = 0; i < kBlockElements; ++i) largest = std::max(largest, std::fabs(block[i]));
  for (int64_t i = 0; i < kBlockElements; ++i)
    if (std::fabs(block[i]) == largest) return block[i];
  return largest;
}
/// Returns the scale of a block before it is rounded to f16. `extreme`: extreme_of the block.
HEARTH_FORMULA inline float block_scale(BlockFormat format, float extreme) {
  return format == BlockFormat::q4_0 ? extreme / -8 : std::fabs(extreme) / 127;
}
/// Returns 1 / scale, the factor from elements to codes; 0 if 1 / scale is not finite, in which case the
/// scale rounded to f16 is 0, too.
HEARTH_FORMULA inline float inverse_of_scale(float scale) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  return std::fabs(inverse) > 3.4028235e38F ? 0 : inverse;
}
/// Returns the code of an element, without the offset: [-8, 7] for q4_0, [-127, 127] for q8_0.
HEARTH_FORMULA inline float block_code(BlockFormat format, float element, float inverse) {
  if (format == BlockFormat::q8_0) return std::round(element * inverse);
  // ggml truncates element * inverse + 8.5 after one rounding (a fused multiply-add).
  return std::fmin(15.0F, std::trunc(std::fma(element, inverse, 8.5F))) - 8;
}

}  // namespace hearth
