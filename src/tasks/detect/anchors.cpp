#include "tasks/detect/anchors.h"

#include <algorithm>
#include <cmath>

namespace hearth::tasks {
namespace {

constexpr double kMatched = 0.5, kMissed = 0.4;

/// Range of cells along one axis whose anchors overlap the interval [low, high] with a positive length.
struct AnchorRange {
  int64_t begin, end;

  AnchorRange(double low, double high, double anchor_low, double anchor_high, int64_t stride, int64_t cells) {
    const auto step = static_cast<double>(stride);
    begin = std::max<int64_t>(0, static_cast<int64_t>(std::floor((low - anchor_high) / step)) + 1);
    end = std::min(cells, static_cast<int64_t>(std::ceil((high - anchor_low) / step)));
  }
};

double overlap_length(double low_a, double high_a, double low_b, double high_b) {
  return std::max(0.0, std::min(high_a, high_b) - std::max(low_a, low_b));
}

AnchorBox shifted(const AnchorBox& box, int64_t x, int64_t y) {
  const auto dx = static_cast<double>(x), dy = static_cast<double>(y);
  return {.x0 = box.x0 + dx, .y0 = box.y0 + dy, .x1 = box.x1 + dx, .y1 = box.y1 + dy};
}

}  // namespace

Anchors::Anchors(Extent size) : levels_(pyramid_levels(size)) {
  for (size_t level = 0; level < levels_.size(); ++level) {
    size_t kind = 0;
    for (const double ratio : {0.5, 1.0, 2.0}) {
      for (const double octave : {0.0, 1.0, 2.0}) {
        const double side = std::floor(std::ldexp(32.0, static_cast<int>(level)) * std::exp2(octave / 3));
        const double x = std::nearbyint(side / std::sqrt(ratio) / 2);
        const double y = std::nearbyint(side * std::sqrt(ratio) / 2);
        kinds_[level][kind++] = {.x0 = -x, .y0 = -y, .x1 = x, .y1 = y};
      }
    }
  }
}

AnchorBox Anchors::at(int64_t index) const {
  const int64_t cell = index / models::kRetinanetAnchors;
  const auto above = std::ranges::upper_bound(levels_, cell, {}, &PyramidLevel::first);
  const auto number = static_cast<size_t>(above - levels_.begin() - 1);
  const PyramidLevel& level = levels_[number];
  const int64_t row = (cell - level.first) / level.columns, column = (cell - level.first) % level.columns;
  return shifted(kinds_[number][static_cast<size_t>(index % models::kRetinanetAnchors)],
                 column * level.stride_x, row * level.stride_y);
}

template <typename Use>
void Anchors::for_each_overlap(const data::Box& box, const Use& use) const {
  const double area = (box.x1 - box.x0) * (box.y1 - box.y0);
  for (size_t number = 0; number < levels_.size(); ++number) {
    const PyramidLevel& level = levels_[number];
    for (size_t kind = 0; kind < kinds_[number].size(); ++kind) {
      const AnchorBox& at = kinds_[number][kind];
      const AnchorRange rows(box.y0, box.y1, at.y0, at.y1, level.stride_y, level.rows);
      const AnchorRange columns(box.x0, box.x1, at.x0, at.x1, level.stride_x, level.columns);
      const double anchor_area = (at.x1 - at.x0) * (at.y1 - at.y0);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t column = columns.begin; column < columns.end; ++column) {
          const AnchorBox anchor = shifted(at, column * level.stride_x, row * level.stride_y);
          const double both = overlap_length(anchor.x0, anchor.x1, box.x0, box.x1) *
                              overlap_length(anchor.y0, anchor.y1, box.y0, box.y1);
          const int64_t cell = level.first + row * level.columns + column;
          use(static_cast<size_t>(cell * models::kRetinanetAnchors) + kind,
              both / (anchor_area + area - both));
        }
      }
    }
  }
}

std::vector<int32_t> Anchors::match(std::span<const data::Box> boxes) const {
  const auto size = static_cast<size_t>(count());
  std::vector<int32_t> best(size, kBackground);
  std::vector<double> overlaps(size), max_overlaps(boxes.size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    for_each_overlap(boxes[i], [&](size_t anchor, double overlap) {
      max_overlaps[i] = std::max(max_overlaps[i], overlap);
      if (overlap <= overlaps[anchor]) return;
      overlaps[anchor] = overlap;
      best[anchor] = static_cast<int32_t>(i);
    });
  }
  std::vector<int32_t> made = best;
  for (size_t anchor = 0; anchor < size; ++anchor) {
    if (overlaps[anchor] < kMatched) made[anchor] = overlaps[anchor] < kMissed ? kBackground : kUndecided;
  }
  for (size_t i = 0; i < boxes.size(); ++i) {
    for_each_overlap(boxes[i], [&](size_t anchor, double overlap) {
      if (overlap > 0 && overlap == max_overlaps[i]) made[anchor] = best[anchor];
    });
  }
  return made;
}

}  // namespace hearth::tasks
