#pragma once

#include "ops/gpu_support.h"

/// Pixels of a batch of images, numbered in 32 bits: GPUs take a hundred instructions to divide 64.
namespace hearth::ops {

struct Pixel {
  int64_t image;
  int y, x;
};
/// Of images of h by w.
RT_DEVICE Pixel pixel_at(int64_t number, int h, int w) {
  const auto small = static_cast<uint32_t>(number), line = small / static_cast<uint32_t>(w);
  const uint32_t image = line / static_cast<uint32_t>(h);
  return {image, static_cast<int>(line - image * static_cast<uint32_t>(h)),
          static_cast<int>(small - line * static_cast<uint32_t>(w))};
}
/// How many there are; UserError where 32 bits cannot number them.
inline int64_t counted_pixels(int64_t batch, int64_t h, int64_t w) {
  if (batch * h * w > UINT32_MAX) refuse_on_gpu("pixels of a batch", UINT32_MAX, batch * h * w);
  return batch * h * w;
}

}  // namespace hearth::ops
