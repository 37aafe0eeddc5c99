#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "ir/op_def.h"
#include "ops/formula.h"

namespace hearth::ops {

/// The anchors of an image: the cells of each feature level.
struct AnchorGrid {
  static constexpr int kMaxLevels = 8;
  int num_levels = 0;
  int strides[kMaxLevels] = {};
  int columns[kMaxLevels] = {};  ///< cells per row
  int ends[kMaxLevels] = {};     ///< index after a level's last anchor
  int anchors = 0, classes = 0;

  /// Returns the grid of a node that passed inference.
  static AnchorGrid of(const ir::NodeView& node) {
    AnchorGrid result;
    const auto size = [](int64_t value) { return static_cast<int>(value); };
    for (const int64_t stride : node.attrs.list("strides")) {
      const int level = result.num_levels++;
      result.strides[level] = size(stride);
      result.columns[level] = size(node.attrs.integer("width") / stride);
      result.anchors += result.columns[level] * size(node.attrs.integer("height") / stride);
      result.ends[level] = result.anchors;
    }
    result.classes = size(node.in_type(0).shape[2]) - 5;
    return result;
  }

  /// Upper left corner and side of a cell, in pixels.
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

  /// Decodes `value`, which is prediction number `part` of an anchor, to pixels or a probability.
  HEARTH_FORMULA float decoded(int anchor, int part, float value) const {
    if (part >= 4) return 1 / (1 + std::exp(-value));
    const Cell at = cell(anchor);
    if (part >= 2) return std::exp(value) * static_cast<float>(at.stride);
    return static_cast<float>((part == 0 ? at.x : at.y) + value * at.stride);
  }
};

/// Returns an error unless a node's input 0 is f32 [N, A, 5 + C] with the anchors of its attributes; empty if
/// it is.
std::string check_anchor_grid(const ir::NodeView& node);

}  // namespace hearth::ops
