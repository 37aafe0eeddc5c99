#pragma once

#include <cstdint>

#include "base/extent.h"
#include "data/images/image.h"
#include "data/loader_options.h"

namespace hearth::data {

/// Throws a UserError if the options are invalid for images of this size and number of channels.
void check_pixels(const PixelOptions& options, Extent size, int64_t channels);

/// Converts an image's bytes to normalized floats, with augmentation by Philox of (key, sample).
struct Augmenter {
  const PixelOptions& options;
  Extent size;
  int64_t channels;

  void apply(uint64_t key, int64_t sample, const uint8_t* pixels, float* out) const;
};

/// Converts normalized floats [height, width, channels] to an 8-bit image, clamped to [0, 255]: the inverse
/// of the normalization in Augmenter, but not of its augmentation.
Image image_of_normalized(const PixelOptions& options, Extent size, int64_t channels, const float* pixels);

}  // namespace hearth::data
