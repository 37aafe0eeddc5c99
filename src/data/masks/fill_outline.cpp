#include "data/masks/fill_outline.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace hearth::data {
namespace {

/// Scale at which pycocotools rasterizes polygons: this multiple of the image's size.
constexpr int64_t kScale = 5;
/// Max absolute value of scaled coordinates, to prevent integer overflow.
constexpr double kMaxCoordinate = 1e9;

int64_t scaled(double coordinate) {
  return static_cast<int64_t>(std::clamp(coordinate * kScale + 0.5, -kMaxCoordinate, kMaxCoordinate));
}

struct Point {
  int64_t x, y;
};

/// Crossings of a polygon's boundary with the vertical center line of each pixel column. toggles_[column *
/// height + row] is true if pixels from that row on change between outside and inside. Two crossings at one
/// position cancel out.
class Crossings {
 public:
  Crossings(int64_t height, int64_t width)
      : height_(height), width_(width), toggles_(static_cast<size_t>(height * width + 1)) {}

  void add_edge(Point from, Point to) {
    const int64_t dx = std::abs(to.x - from.x), dy = std::abs(to.y - from.y);
    if ((dx >= dy && from.x > to.x) || (dx < dy && from.y > to.y)) std::swap(from, to);
    const auto [left, right] = std::minmax(from.x, to.x);
    // Visits the columns whose center line, x = kScale * column + 2 in scaled coordinates, is in [left,
    // right).
    const int64_t first = std::max<int64_t>(0, (left + kScale - 3) / kScale);
    for (int64_t column = first; column < width_ && kScale * column + 3 <= right; ++column) {
      const int64_t center = kScale * column + kScale / 2;
      if (center < left) continue;
      add(column, dx >= dy ? y_of_flat(from, to, center) : y_of_steep(from, to, center));
    }
  }

  void fill(uint8_t value, Image& mask) const {
    bool is_inside = false;
    for (int64_t x = 0; x < width_; ++x) {
      for (int64_t y = 0; y < height_; ++y) {
        is_inside = is_inside != toggles_[static_cast<size_t>(x * height_ + y)];
        if (is_inside) mask.pixels[static_cast<size_t>(y * width_ + x)] = value;
      }
    }
  }

 private:
  static int64_t rounded(int64_t start, double slope, int64_t step) {
    return static_cast<int64_t>(static_cast<double>(start) + slope * static_cast<double>(step) + 0.5);
  }
  static int64_t y_of_flat(Point from, Point to, int64_t center) {
    const double slope = static_cast<double>(to.y - from.y) / static_cast<double>(to.x - from.x);
    const int64_t step = center - from.x;
    return std::min(rounded(from.y, slope, step), rounded(from.y, slope, step + 1));
  }
  /// Returns the largest y of a steep edge, which goes from `from` down to `to`, before it crosses x =
  /// center. Bisection over y.
  static int64_t y_of_steep(Point from, Point to, int64_t center) {
    const double slope = static_cast<double>(to.x - from.x) / static_cast<double>(to.y - from.y);
    int64_t before = 0, after = to.y - from.y;
    while (after - before > 1) {
      const int64_t middle = (before + after) / 2;
      const bool is_left = rounded(from.x, slope, middle) <= center;
      (is_left == (slope > 0) ? before : after) = middle;
    }
    return from.y + before;
  }
  void add(int64_t column, int64_t y) {
    const double row = (static_cast<double>(y) + 0.5) / kScale - 0.5;
    const auto at = static_cast<int64_t>(std::ceil(std::clamp(row, 0.0, static_cast<double>(height_))));
    const auto position = static_cast<size_t>(column * height_ + at);
    toggles_[position] = !toggles_[position];
  }

  int64_t height_, width_;
  std::vector<bool> toggles_;
};

void fill_polygon(const std::vector<double>& corners, uint8_t value, Image& mask) {
  Crossings crossings(mask.height, mask.width);
  for (size_t i = 0; i + 1 < corners.size(); i += 2) {
    const size_t next = i + 3 < corners.size() ? i + 2 : 0;
    crossings.add_edge({scaled(corners[i]), scaled(corners[i + 1])},
                       {scaled(corners[next]), scaled(corners[next + 1])});
  }
  crossings.fill(value, mask);
}

void fill_runs(const Outline& outline, uint8_t value, Image& mask) {
  const int64_t length = outline.by_columns ? outline.height : outline.width;
  int64_t at = 0;
  for (size_t i = 0; i < outline.runs.size(); ++i) {
    const int64_t end = at + outline.runs[i];
    for (; i % 2 == 1 && at < end; ++at) {
      const int64_t x = outline.left + (outline.by_columns ? at / length : at % length);
      const int64_t y = outline.top + (outline.by_columns ? at % length : at / length);
      if (x >= 0 && x < mask.width && y >= 0 && y < mask.height)
        mask.pixels[static_cast<size_t>(y * mask.width + x)] = value;
    }
    at = end;
  }
}

}  // namespace

void fill_outline(const Outline& outline, uint8_t value, Image& mask) {
  for (const std::vector<double>& polygon : outline.polygons) fill_polygon(polygon, value, mask);
  if (outline.polygons.empty()) fill_runs(outline, value, mask);
}

}  // namespace hearth::data
