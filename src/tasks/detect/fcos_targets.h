#pragma once

#include <array>
#include <span>
#include <vector>

#include "data/boxes/box.h"
#include "tasks/detect/pyramid.h"

namespace hearth::tasks {

/// A cell of a pyramid as FCOS sees it: where it is, and the size of its level, 8 to 128. Pixels.
struct FcosCell {
  double x = 0, y = 0;
  double side = 0;
};
FcosCell fcos_cell(const PyramidLevels& levels, int64_t index);

/// What a cell learns (Tian et al. 2019, arXiv 1904.01355).
struct FcosTarget {
  int32_t box = -1;  ///< whose center it is near; -1: none
  std::array<double, 4> edges =
      {};  ///< how far its left, upper, right and lower edges lie, by the cell's side
  double centerness = 0;
};
/// For each cell the smallest box that it lies in, within 1.5 sides of the box's center, if the farthest edge
/// is 4 to 8 sides away, or less on the finest level, or more on the coarsest.
std::vector<FcosTarget> fcos_targets(std::span<const data::Box> boxes, Extent size);

}  // namespace hearth::tasks
