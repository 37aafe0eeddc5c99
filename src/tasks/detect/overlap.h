#pragma once

#include <algorithm>

namespace hearth::tasks {

/// Intersection over union of two boxes with x, y, width and height; over the first one's area alone where
/// the second is a crowd. The operations and their order are those of COCO's tools, so that results are equal
/// to the bit.
template <typename First, typename Second>
double overlap(const First& a, const Second& b, bool crowd = false) {
  const double width = std::min(a.width + a.x, b.width + b.x) - std::max(a.x, b.x);
  if (width <= 0) return 0;
  const double height = std::min(a.height + a.y, b.height + b.y) - std::max(a.y, b.y);
  if (height <= 0) return 0;
  // Statements of their own: nothing may be fused into one rounding.
  const double area_a = a.width * a.height;
  const double area_b = b.width * b.height;
  const double both = width * height;
  const double either = crowd ? area_a : area_a + area_b - both;
  return both / either;
}

}  // namespace hearth::tasks
