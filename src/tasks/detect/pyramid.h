#pragma once

#include <array>

#include "base/extent.h"
#include "models/fpn/fpn.h"

namespace hearth::tasks {

/// Grid of the cells of one level of a feature pyramid; cell (0, 0) is at the image's upper left corner.
struct PyramidLevel {
  int64_t rows = 0, columns = 0;
  /// Distance between cells in pixels: image side / number of cells, rounded down.
  int64_t stride_y = 0, stride_x = 0;
  int64_t first = 0;  ///< index of its first cell among the cells of all levels
};
using PyramidLevels = std::array<PyramidLevel, models::kNumPyramidLevels>;

/// Returns levels P3 to P7 of an image whose sides are multiples of 32.
PyramidLevels pyramid_levels(Extent size);
/// Returns the number of cells of all levels.
int64_t num_cells(const PyramidLevels& levels);

}  // namespace hearth::tasks
