#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "base/formula.h"

namespace hearth::ops {

/// The 256 values of the dynamic 8-bit data type in ascending order (arXiv 1511.04561 and 2110.02861; equal
/// to bitsandbytes' create_dynamic_map): 0, 1, and evenly spaced values in each of seven decades, twice as
/// many in each larger decade. The signed map has values of both signs, with 0 at index 127; the unsigned map
/// has 0 at index 0.
using DynamicMap = std::array<float, 256>;
const DynamicMap& dynamic_map(bool with_sign);

/// Returns boundary i of [0.1, 1] divided into `count` equal parts, rounded as in torch.linspace.
HEARTH_FORMULA inline float dynamic_cut(int i, int count) {
  const float step = (1.0F - 0.1F) / static_cast<float>(count);
  if (i < (count + 1) / 2) return std::fma(step, static_cast<float>(i), 0.1F);
  return std::fma(-step, static_cast<float>(count - i), 1.0F);
}
/// Returns entry `code` of dynamic_map(with_sign).
HEARTH_FORMULA inline float dynamic_value(bool with_sign, uint8_t code) {
  const int zero = with_sign ? 127 : 0;
  if (code == zero || code == 255) return code == 255 ? 1.0F : 0.0F;
  // The values of one sign are in decades of 1, 2, 4, ..., 64 values (unsigned map: 2, 4, ..., 128), in
  // ascending order.
  const int first_count = with_sign ? 1 : 2;
  const int rank = (code > zero ? code - zero : zero - code) - 1 + first_count;
  int count = 64 * first_count;
  float decade = 1;
  for (const float below : {1e-1F, 1e-2F, 1e-3F, 1e-4F, 1e-5F, 1e-6F}) {
    if (rank >= count) break;
    count /= 2;
    decade = below;
  }
  const int i = rank - count;
  const float value = decade * ((dynamic_cut(i, count) + dynamic_cut(i + 1, count)) / 2);
  return code < zero ? -value : value;
}

/// Computes codes[i], the index of the map value nearest to factor * in[i].
void quantize_dynamic(bool with_sign, const float* in, float factor, uint8_t* codes, int64_t count);
/// Replaces codes of the signed map whose value has another sign than in[i] by the adjacent code: a small
/// negative number does not become 0, but a small positive one may, as in bitsandbytes' optimizers.
void keep_signs(const float* in, uint8_t* codes, int64_t count);

}  // namespace hearth::ops
