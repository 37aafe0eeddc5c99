#pragma once

#include <cstdint>

#include "base/philox.h"
#include "ir/attrs.h"

namespace hearth::ops {

/// Philox key and counter words of a dropout mask; together with an element's index they determine whether it
/// is dropped.
struct MaskKey {
  uint64_t key;
  uint32_t step;
  uint32_t micro_batch;
  uint32_t threshold;  ///< elements whose random word is below the threshold are dropped
  float scale;
};
/// Returns the key of a dropout node, with step and micro_batch 0; kernels set them from the input `counter`.
MaskKey mask_key(const ir::Attrs& attrs);

/// Computes the factors (0 or the scale) of elements [4 * group, 4 * group + 4).
HEARTH_PHILOX inline void mask_factors(const MaskKey& key, uint64_t group, float* out) {
  uint32_t words[4] = {static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), key.step,
                       key.micro_batch};
  philox4x32_in_place(key.key, words);
  for (int j = 0; j < 4; ++j) out[j] = words[j] < key.threshold ? 0.0F : key.scale;
}

}  // namespace hearth::ops
