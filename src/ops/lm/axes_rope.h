#pragma once

#include <cstdint>

#include "ops/formula.h"

namespace hearth::ops {

/// The tokens of an axes_rope_table: of each sample `text`, then height * width patches.
struct AxesTokens {
  int64_t text, height, width;
  int64_t num_axes;

  HEARTH_FORMULA int64_t per_sample() const { return text + height * width; }
  /// Coordinate `axis` of a sample's token.
  HEARTH_FORMULA int64_t coordinate(int64_t token, int64_t axis) const {
    const int64_t row_axis = num_axes == 2 ? 0 : 1;
    if (token < text) return axis == 3 ? token : 0;
    const int64_t patch = token - text;
    return axis == row_axis ? patch / width : axis == row_axis + 1 ? patch % width : 0;
  }
};

}  // namespace hearth::ops
