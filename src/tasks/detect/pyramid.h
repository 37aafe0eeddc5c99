#pragma once

#include <array>

#include "base/extent.h"
#include "models/fpn/fpn.h"

namespace hearth::tasks {

/// The cells of a level of a feature pyramid; cell (0, 0) is at the picture's corner.
struct PyramidLevel {
  int64_t rows = 0, columns = 0;
  int64_t stride_y = 0, stride_x = 0;  ///< pixels between cells: sides of the picture by cells, rounded down
  int64_t first = 0;                   ///< cells of all levels before it
};
using PyramidLevels = std::array<PyramidLevel, models::kNumPyramidLevels>;

/// P3 to P7 of a picture whose sides 32 divides.
PyramidLevels pyramid_levels(Extent size);
/// Cells of all levels.
int64_t num_cells(const PyramidLevels& levels);

}  // namespace hearth::tasks
