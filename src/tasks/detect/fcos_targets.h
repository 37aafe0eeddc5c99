#pragma once

#include <array>
#include <span>
#include <vector>

#include "data/boxes/box.h"
#include "tasks/detect/pyramid.h"

namespace hearth::tasks {

/// A cell of a pyramid in FCOS: its position and the size unit of its level (8 to 128), in pixels.
struct FcosCell {
  double x = 0, y = 0;
  double side = 0;
};
/// Returns a cell by its index over all levels, finest level first.
FcosCell fcos_cell(const PyramidLevels& levels, int64_t index);

/// Training target of a cell (Tian et al. 2019, arXiv 1904.01355).
struct FcosTarget {
  int32_t box = -1;                  ///< index of the box; -1: background
  std::array<double, 4> edges = {};  ///< left, upper, right, lower / side
  double centerness = 0;
};
/// Returns the target of each cell: the smallest box that contains it, has its center within 1.5 sides of it
/// along both axes, and has its farthest edge 4 to 8 sides away (finest level: also less; coarsest level:
/// also more).
std::vector<FcosTarget> fcos_targets(std::span<const data::Box> boxes, Extent size);

}  // namespace hearth::tasks
