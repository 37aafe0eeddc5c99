#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/gpu/device.h"
#include "base/dtype.h"
#include "base/philox.h"
#include "ir/value.h"

namespace hearth::ops {

/// Returns a hash of seed and index (the finalizer of MurmurHash3).
HEARTH_PHILOX inline uint32_t drawn_bits(uint32_t seed, int64_t index) {
  const auto position = static_cast<uint64_t>(index);
  uint32_t bits =
      (seed + static_cast<uint32_t>(position >> 32)) * 0x9E3779B9U + static_cast<uint32_t>(position);
  bits = (bits ^ bits >> 16) * 0x85EBCA6BU;
  bits = (bits ^ bits >> 13) * 0xC2B2AE35U;
  return bits ^ bits >> 16;
}
/// Returns element `index` of a pseudorandom array: an odd multiple of 1/64 in (-1, 1), which is exact in
/// every floating dtype. The value depends only on seed and index, so that the host can compute any element
/// of an array drawn on a GPU.
HEARTH_PHILOX inline float drawn_element(uint32_t seed, int64_t index) {
  return static_cast<float>(static_cast<int>(drawn_bits(seed, index) >> 26) * 2 - 63) / 64;
}
/// Root mean square of the product of two independent drawn elements.
inline constexpr double kDrawnProduct = 1.0 / 3;

/// Enqueues a kernel that fills a bf16, f16 or f32 array with drawn_element() times `scale`, a power of two.
void draw_on_gpu(gpu::Device& device, gpu::Stream& stream, const ir::Type& type, std::byte* to, uint32_t seed,
                 float scale = 1);

}  // namespace hearth::ops
