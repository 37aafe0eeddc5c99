#pragma once

#include <array>
#include <span>
#include <vector>

#include "data/boxes/box.h"
#include "tasks/detect/pyramid.h"

namespace hearth::tasks {

/// A cell of a pyramid in FCOS. `x`, `y`: its position in pixels; `side`: nominal stride of its level in
/// pixels (8 to 128), the unit of sizes.
struct FcosCell {
  double x = 0, y = 0;
  double side = 0;
};
/// Returns the cell with index `index` in the list of all levels' cells, finest level first.
FcosCell fcos_cell(const PyramidLevels& levels, int64_t index);

/// Training target of a cell (Tian et al. 2019, arXiv 1904.01355).
struct FcosTarget {
  int32_t box = -1;  ///< index of the box; -1: background
  /// Distances to left, upper, right, lower edge, in units of FcosCell::side.
  std::array<double, 4> edges = {};
  double centerness = 0;
};
/// Returns the target of each cell: the smallest box that meets three criteria: it contains the cell's
/// position; its center is at most 1.5 sides away along both axes; and its farthest edge is 4 to 8 sides away
/// (on the finest level also less, on the coarsest also more). `size`: size of the image.
std::vector<FcosTarget> fcos_targets(std::span<const data::Box> boxes, Extent size);

}  // namespace hearth::tasks
