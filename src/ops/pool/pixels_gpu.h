#pragma once

#include "ops/gpu_support.h"

/// Pixel positions in a batch of images, computed in 32 bits because a 64-bit division takes about a hundred
/// instructions on GPUs.
namespace hearth::ops {

struct Pixel {
  int64_t image;
  int y, x;
};
/// Returns the position of pixel `number` of a batch of h x w images.
RT_DEVICE Pixel pixel_at(int64_t number, int h, int w) {
  const auto small = static_cast<uint32_t>(number), line = small / static_cast<uint32_t>(w);
  const uint32_t image = line / static_cast<uint32_t>(h);
  return {image, static_cast<int>(line - image * static_cast<uint32_t>(h)),
          static_cast<int>(small - line * static_cast<uint32_t>(w))};
}
/// Returns the number of pixels of a batch of h x w images; UserError if it exceeds 32 bits.
inline int64_t counted_pixels(int64_t batch, int64_t h, int64_t w) {
  if (batch * h * w > UINT32_MAX) refuse_on_gpu("the number of pixels per batch", UINT32_MAX, batch * h * w);
  return batch * h * w;
}

}  // namespace hearth::ops
