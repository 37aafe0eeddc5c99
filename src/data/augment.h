#pragma once

#include <cstdint>

#include "data/loader_options.h"

namespace hearth::data {

/// UserError when the options do not fit images of this size.
void check_augment(const LoaderOptions& options, int64_t side, int64_t channels);

/// An image's bytes into normalized floats, with the random choices of (key, sample).
struct Augmenter {
  const LoaderOptions& options;
  int64_t side;
  int64_t channels;

  void apply(uint64_t key, int64_t sample, const uint8_t* pixels, float* out) const;
};

}  // namespace hearth::data
