#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "base/formula.h"
#include "ir/op_def.h"

namespace hearth::ops {

/// The anchors of an image: one per cell of each feature level, numbered level by level and row by row.
struct AnchorGrid {
  static constexpr int kMaxLevels = 8;
  int num_levels = 0;
  int strides[kMaxLevels] = {};
  int columns[kMaxLevels] = {};  ///< cells per row
  int ends[kMaxLevels] = {};     ///< end index of each level's anchors
  int anchors = 0, classes = 0;

  /// Returns the grid of a node whose types and attributes were checked by check_anchor_grid().
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

  /// Decodes component `part` of an anchor's predictions from its raw value: 0 to 3 to pixels (center x,
  /// center y, width, height), the others to a probability.
  HEARTH_FORMULA float decoded(int anchor, int part, float value) const {
    if (part >= 4) return 1 / (1 + std::exp(-value));
    const Cell at = cell(anchor);
    if (part >= 2) return std::exp(value) * static_cast<float>(at.stride);
    return static_cast<float>((part == 0 ? at.x : at.y) + value * at.stride);
  }
};

/// Returns an error message unless a node's input 0 is f32 [N, A, 5 + C], where A is the number of anchors by
/// the attributes `strides`, `height` and `width`; empty if valid.
std::string check_anchor_grid(const ir::NodeView& node);

}  // namespace hearth::ops
