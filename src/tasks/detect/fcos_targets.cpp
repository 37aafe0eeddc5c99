#include "tasks/detect/fcos_targets.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace hearth::tasks {
namespace {

constexpr double kRadius = 1.5, kNearest = 4, kFarthest = 8;

double side_of(size_t level) { return std::ldexp(8.0, static_cast<int>(level)); }

/// Range of cells along one axis whose distance from `center` is at most `radius`; may include one more cell
/// at each end.
struct CellRange {
  int64_t begin, end;

  CellRange(double center, double radius, int64_t stride, int64_t cells) {
    const auto step = static_cast<double>(stride);
    begin = std::max<int64_t>(0, static_cast<int64_t>(std::floor((center - radius) / step)));
    end = std::min(cells, static_cast<int64_t>(std::ceil((center + radius) / step)) + 1);
  }
};

/// Returns the distances in pixels from a point to the box's left, upper, right and lower edges.
std::array<double, 4> edges_of(const data::Box& box, double x, double y) {
  return {x - box.x0, y - box.y0, box.x1 - x, box.y1 - y};
}

/// True if a cell is a candidate for a box by the criteria of fcos_targets().
bool is_candidate(const data::Box& box, const FcosCell& cell, size_t level) {
  const double center_distance =
      std::max(std::abs(cell.x - (box.x0 + box.x1) / 2), std::abs(cell.y - (box.y0 + box.y1) / 2));
  const auto [nearest, farthest] = std::ranges::minmax(edges_of(box, cell.x, cell.y));
  const bool is_first = level == 0, is_last = level + 1 == models::kNumPyramidLevels;
  return center_distance < kRadius * cell.side && nearest > 0 &&
         (is_first || farthest > kNearest * cell.side) && (is_last || farthest < kFarthest * cell.side);
}

double centerness(const std::array<double, 4>& edges) {
  const auto [left, top, right, bottom] = edges;
  return std::sqrt(std::min(left, right) / std::max(left, right) * std::min(top, bottom) /
                   std::max(top, bottom));
}

}  // namespace

FcosCell fcos_cell(const PyramidLevels& levels, int64_t index) {
  const auto above = std::ranges::upper_bound(levels, index, {}, &PyramidLevel::first);
  const auto number = static_cast<size_t>(above - levels.begin() - 1);
  const PyramidLevel& level = levels[number];
  const int64_t row = (index - level.first) / level.columns, column = (index - level.first) % level.columns;
  return {.x = static_cast<double>(column * level.stride_x),
          .y = static_cast<double>(row * level.stride_y),
          .side = side_of(number)};
}

std::vector<FcosTarget> fcos_targets(std::span<const data::Box> boxes, Extent size) {
  const PyramidLevels levels = pyramid_levels(size);
  std::vector<FcosTarget> made(static_cast<size_t>(num_cells(levels)));
  std::vector<double> areas(made.size(), std::numeric_limits<double>::infinity());
  for (size_t i = 0; i < boxes.size(); ++i) {
    const data::Box& box = boxes[i];
    const double area = (box.x1 - box.x0) * (box.y1 - box.y0);
    for (size_t number = 0; number < levels.size(); ++number) {
      const PyramidLevel& level = levels[number];
      const double radius = kRadius * side_of(number);
      const CellRange rows((box.y0 + box.y1) / 2, radius, level.stride_y, level.rows);
      const CellRange columns((box.x0 + box.x1) / 2, radius, level.stride_x, level.columns);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t column = columns.begin; column < columns.end; ++column) {
          const int64_t index = level.first + row * level.columns + column;
          const auto at = static_cast<size_t>(index);
          if (area >= areas[at] || !is_candidate(box, fcos_cell(levels, index), number)) continue;
          areas[at] = area;
          made[at].box = static_cast<int32_t>(i);
        }
      }
    }
  }
  for (size_t at = 0; at < made.size(); ++at) {
    if (made[at].box < 0) continue;
    const FcosCell cell = fcos_cell(levels, static_cast<int64_t>(at));
    made[at].edges = edges_of(boxes[static_cast<size_t>(made[at].box)], cell.x, cell.y);
    made[at].centerness = centerness(made[at].edges);
    for (double& edge : made[at].edges) edge /= cell.side;
  }
  return made;
}

}  // namespace hearth::tasks
