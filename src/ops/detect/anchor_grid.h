#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "ir/op_def.h"
#include "ops/formula.h"

namespace hearth::ops {

/// The anchors of a picture.
struct AnchorGrid {
  static constexpr int kMostLevels = 8;
  int num_levels = 0;
  int strides[kMostLevels] = {};
  int columns[kMostLevels] = {};  ///< cells in a row
  int ends[kMostLevels] = {};     ///< anchor after a level's last
  int anchors = 0, classes = 0;

  /// Of a node that inference took.
  static AnchorGrid of(const ir::NodeView& node) {
    AnchorGrid made;
    const auto size = [](int64_t value) { return static_cast<int>(value); };
    for (const int64_t stride : node.attrs.list("strides")) {
      const int level = made.num_levels++;
      made.strides[level] = size(stride);
      made.columns[level] = size(node.attrs.integer("width") / stride);
      made.anchors += made.columns[level] * size(node.attrs.integer("height") / stride);
      made.ends[level] = made.anchors;
    }
    made.classes = size(node.in_type(0).shape[2]) - 5;
    return made;
  }

  /// The cell's upper left corner, in pixels.
  struct Cell {
    double x, y, stride;
  };
  HEARTH_FORMULA Cell cell(int anchor) const {
    int level = 0;
    while (anchor >= ends[level]) ++level;
    const int at = anchor - (level == 0 ? 0 : ends[level - 1]);
    const double stride = strides[level];
    return {at % columns[level] * stride, at / columns[level] * stride, stride};
  }

  /// What `value`, number `part` of what is predicted for an anchor, says: pixels, or a probability.
  HEARTH_FORMULA float decoded(int anchor, int part, float value) const {
    if (part >= 4) return 1 / (1 + std::exp(-value));
    const Cell at = cell(anchor);
    if (part >= 2) return std::exp(value) * static_cast<float>(at.stride);
    return static_cast<float>((part == 0 ? at.x : at.y) + value * at.stride);
  }
};

/// Why a node's input 0 is no f32 [N, A, 5 + C] of the anchors that its attributes say; empty: it is.
std::string check_anchor_grid(const ir::NodeView& node);

}  // namespace hearth::ops
