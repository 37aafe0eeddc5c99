#pragma once

#include <cstdint>

#include "data/loader.h"

namespace hearth::data {

/// A picture's bytes into normalised floats, with the random choices of (key, sample).
struct Augmenter {
  const LoaderOptions& options;
  int64_t side;
  int64_t channels;

  void apply(uint64_t key, int64_t sample, const uint8_t* pixels, float* out) const;
};

}  // namespace hearth::data
