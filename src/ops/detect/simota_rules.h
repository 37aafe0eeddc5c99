#pragma once

#include <cmath>
#include <cstdint>

#include "ops/detect/anchor_grid.h"

namespace hearth::ops {

/// Corners of a box, in pixels.
struct Corners {
  double left, top, right, bottom;

  HEARTH_FORMULA static Corners around(double x, double y, double w, double h) {
    return {x - w / 2, y - h / 2, x + w / 2, y + h / 2};
  }
  HEARTH_FORMULA double area() const { return (right - left) * (bottom - top); }
  /// Returns the intersection over union; 0 if the boxes do not overlap. Rounded to f32, because float64
  /// results of devices may differ in the last bits.
  HEARTH_FORMULA double iou(const Corners& other) const {
    const double w = (right < other.right ? right : other.right) - (left > other.left ? left : other.left);
    const double h = (bottom < other.bottom ? bottom : other.bottom) - (top > other.top ? top : other.top);
    if (!(w > 0 && h > 0)) return 0;
    const double share = w * h / (area() + other.area() - w * h);
    return share > 0 ? static_cast<float>(share) : 0.0F;
  }
};

/// A target box (center, width and height in pixels) and its class; label -1 if there is no box.
struct Target {
  int label;
  double x, y, w, h;
  HEARTH_FORMULA Corners corners() const { return Corners::around(x, y, w, h); }
};

/// The kMaxCount smallest of the added values with their numbers (indices), in ascending order of value, then
/// of number.
struct Ranking {
  static constexpr int kMaxCount = 10;
  double values[kMaxCount];
  int numbers[kMaxCount];  ///< -1 for unused entries

  /// Removes all entries.
  HEARTH_FORMULA void clear() {
    for (int i = 0; i < kMaxCount; ++i) {
      values[i] = HUGE_VAL;
      numbers[i] = -1;
    }
  }
  /// True if the entry (value, number) precedes the entry (other, other_number).
  HEARTH_FORMULA static bool before(double value, int number, double other, int other_number) {
    return value < other || (value == other && number < other_number);
  }
  /// Inserts an entry; ignores infinite values, and entries after the last one of a full ranking.
  HEARTH_FORMULA void add(double value, int number) {
    if (!(value < HUGE_VAL) || !is_before(value, number, kMaxCount - 1)) return;
    // Branch-free insertion: entries after the new one move by one position.
    for (int i = 0; i < kMaxCount; ++i) {
      const bool comes = is_before(value, number, i);
      const double later = values[i];
      const int later_number = numbers[i];
      values[i] = comes ? value : later;
      numbers[i] = comes ? number : later_number;
      value = comes ? later : value;
      number = comes ? later_number : number;
    }
  }
  /// Removes the first entry.
  HEARTH_FORMULA void drop_first() {
    for (int i = 0; i + 1 < kMaxCount; ++i) {
      values[i] = values[i + 1];
      numbers[i] = numbers[i + 1];
    }
    values[kMaxCount - 1] = HUGE_VAL;
    numbers[kMaxCount - 1] = -1;
  }

 private:
  HEARTH_FORMULA bool is_before(double value, int number, int i) const {
    return numbers[i] < 0 || before(value, number, values[i], numbers[i]);
  }
};

/// Sizes of a simota node, and the cost of assigning a target to an anchor; shared by CPU and GPU kernels.
struct SimOta : AnchorGrid {
  int targets = 0;

  static SimOta of(const ir::NodeView& node) {
    SimOta result;
    static_cast<AnchorGrid&>(result) = AnchorGrid::of(node);
    result.targets = static_cast<int>(node.in_type(1).shape[1]);
    return result;
  }

  HEARTH_FORMULA const float* raw_of(const float* raw, int anchor) const {
    return raw + static_cast<int64_t>(anchor) * (5 + classes);
  }
  HEARTH_FORMULA Target target(const float* from, int index) const {
    from += static_cast<int64_t>(index) * 5;
    const bool there = from[0] >= 0 && from[0] < static_cast<float>(classes);
    return {there ? static_cast<int>(from[0]) : -1, from[1], from[2], from[3], from[4]};
  }
  HEARTH_FORMULA Corners predicted(const float* raw, int anchor) const {
    const Cell at = cell(anchor);
    const float* local = raw_of(raw, anchor);
    return Corners::around(at.x + local[0] * at.stride, at.y + local[1] * at.stride,
                           std::exp(static_cast<double>(local[2])) * at.stride,
                           std::exp(static_cast<double>(local[3])) * at.stride);
  }

  /// Returns component `i` of a target's box {center x, center y, width, height}, in cells, relative to the
  /// upper left corner of the anchor's cell.
  HEARTH_FORMULA float side(int anchor, const Target& target, int i) const {
    const Cell at = cell(anchor);
    const double pixels = i == 0 ? target.x - at.x : i == 1 ? target.y - at.y : i == 2 ? target.w : target.h;
    return static_cast<float>(pixels / at.stride);
  }

  /// True values if a cell's center is inside of a box, and if it is within 2.5 cells of the box's center.
  struct CellPosition {
    bool in_box, near_center;
  };
  HEARTH_FORMULA static CellPosition position_of(const Cell& at, const Target& target) {
    const double x = at.x + at.stride / 2, y = at.y + at.stride / 2, radius = kRadius * at.stride;
    const double dx = std::fabs(x - target.x), dy = std::fabs(y - target.y);
    return {dx < target.w / 2 && dy < target.h / 2, dx < radius && dy < radius};
  }
  /// True if the center of the anchor's cell is inside of any target box or near its center. Other anchors
  /// get no target.
  HEARTH_FORMULA bool is_candidate(const float* from, int anchor) const {
    const Cell at = cell(anchor);
    for (int t = 0; t < targets; ++t) {
      const Target wanted = target(from, t);
      if (wanted.label < 0) continue;
      const CellPosition found = position_of(at, wanted);
      if (found.in_box || found.near_center) return true;
    }
    return false;
  }

  /// Returns the part of an anchor's cost that is equal for all targets: the sum over all classes of the
  /// cross-entropy of the class score with label 0. A score is the square root of objectness times class
  /// probability.
  HEARTH_FORMULA double cost_of_no_class(const float* raw, int anchor) const {
    const float* local = raw_of(raw, anchor);
    double sum = 0, product = 1;
    for (int c = 0; c < classes; ++c) {
      product *= clamp_probability(1 - score(local, c));
      if (product > kFlush) continue;
      sum -= std::log(product);
      product = 1;
    }
    return sum - std::log(product);
  }
  /// Returns the cost of assigning target `wanted` to an anchor; `of_no_class` is cost_of_no_class(). Rounded
  /// to f32 before the penalty is added, so that equal costs are ties on all devices.
  HEARTH_FORMULA double cost(const float* raw, int anchor, double of_no_class, const Target& wanted,
                             double iou) const {
    const double local = score(raw_of(raw, anchor), wanted.label);
    const CellPosition found = position_of(cell(anchor), wanted);
    const double inside = of_no_class + std::log(clamp_probability(1 - local) / clamp_probability(local)) -
                          kIouWeight * std::log(iou + 1e-8);
    return static_cast<float>(inside) + (found.in_box && found.near_center ? 0 : kOutside);
  }
  /// Returns the number of anchors that a target selects (dynamic k), given the sum of its Ranking::kMaxCount
  /// largest IoUs.
  HEARTH_FORMULA static int num_matches(double sum) { return sum < 1 ? 1 : static_cast<int>(sum); }

 private:
  static constexpr double kRadius = 2.5, kIouWeight = 3, kOutside = 1e5;
  static constexpr double kMinProbability =
      3.720075976020836e-44;  ///< e^-100, so that a cross-entropy is at most 100
  static constexpr double kFlush = 1e-200;

  HEARTH_FORMULA static double clamp_probability(double share) {
    return share < kMinProbability ? kMinProbability : share;
  }
  HEARTH_FORMULA static double score(const float* local, int label) {
    return 1 / std::sqrt((1 + std::exp(-static_cast<double>(local[4]))) *
                         (1 + std::exp(-static_cast<double>(local[5 + label]))));
  }
};

}  // namespace hearth::ops
