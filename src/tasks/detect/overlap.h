#pragma once

#include <algorithm>

namespace hearth::tasks {

/// Returns the intersection over union of two boxes that have x, y, width and height; if `crowd` (the second
/// box is a crowd), the intersection over the first box's area. The operations and their order are those of
/// pycocotools, so results are bitwise equal.
template <typename First, typename Second>
double overlap(const First& a, const Second& b, bool crowd = false) {
  const double width = std::min(a.width + a.x, b.width + b.x) - std::max(a.x, b.x);
  if (width <= 0) return 0;
  const double height = std::min(a.height + a.y, b.height + b.y) - std::max(a.y, b.y);
  if (height <= 0) return 0;
  // Separate statements prevent contraction into fused multiply-adds, which round differently.
  const double area_a = a.width * a.height;
  const double area_b = b.width * b.height;
  const double both = width * height;
  const double either = crowd ? area_a : area_a + area_b - both;
  return both / either;
}

}  // namespace hearth::tasks
