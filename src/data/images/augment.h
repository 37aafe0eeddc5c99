#pragma once

#include <cstdint>

#include "base/extent.h"
#include "data/loader_options.h"

namespace hearth::data {

/// UserError when the options do not fit images of this size.
void check_pixels(const PixelOptions& options, Extent size, int64_t channels);

/// An image's bytes into normalized floats, with the random choices of (key, sample).
struct Augmenter {
  const PixelOptions& options;
  Extent size;
  int64_t channels;

  void apply(uint64_t key, int64_t sample, const uint8_t* pixels, float* out) const;
};

}  // namespace hearth::data
