#pragma once

#include <cstdint>

#include "base/formula.h"

namespace hearth::ops {

/// Token layout of an axes_rope_table: each sample has `text` text tokens, then height * width image patches,
/// row by row.
template <typename Int>
struct AxesTokens {
  Int text, height, width;
  Int num_axes;

  /// Returns the number of tokens per sample.
  HEARTH_FORMULA Int per_sample() const { return text + height * width; }
  /// Returns coordinate number `axis` of a token; `token` is its index within the sample.
  HEARTH_FORMULA Int coordinate(Int token, Int axis) const {
    const Int row_axis = num_axes == 2 ? 0 : 1;
    if (token < text) return axis == 3 ? token : 0;
    const Int patch = token - text;
    return axis == row_axis ? patch / width : axis == row_axis + 1 ? patch % width : 0;
  }
};

}  // namespace hearth::ops
