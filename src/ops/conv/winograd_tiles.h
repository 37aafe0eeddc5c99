#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {

/// Sides of a tile of outputs and of the patch of inputs it depends on, in F(4x4,3x3).
inline constexpr int64_t kTileSide = 4;
inline constexpr int64_t kPatchSide = 6;

/// Transformed positions are this many floats apart: an odd number of cache lines, so that a tile's 36 values
/// do not compete for the same cache set.
inline int64_t odd_lines(int64_t floats) {
  const int64_t lines = (floats + 15) / 16;
  return (lines + 1 - lines % 2) * 16;
}

/// Where a tile lies.
struct Tile {
  int64_t image, y, x;
};

struct TileGrid {
  int64_t rows, columns;
  TileGrid(int64_t out_h, int64_t out_w) : rows((out_h + 3) / kTileSide), columns((out_w + 3) / kTileSide) {}
  int64_t per_image() const { return rows * columns; }
  Tile at(int64_t index) const {
    const int64_t in_image = index % per_image();
    return {index / per_image(), in_image / columns * kTileSide, in_image % columns * kTileSide};
  }
};

/// The rows and columns of a side x side tile at (y, x) that lie inside h x w.
inline TileWindow window_of(int64_t y, int64_t x, int64_t h, int64_t w, int64_t side) {
  return {std::max<int64_t>(0, -y), std::min(side, h - y), std::max<int64_t>(0, -x), std::min(side, w - x)};
}

/// An image tensor NHWC from which f32 tiles are read.
struct Images {
  DType dtype;
  const void* data;
  int64_t h, w, c;

  int64_t index(int64_t image, int64_t y, int64_t x) const { return ((image * h + y) * w + x) * c; }

  /// `count` channels from `first` on of a tile at (y, x): the image itself for f32, else a copy of the
  /// window in `scratch` (side * side * count floats).
  Field<const float> tile(const Tile& at, TileWindow window, int64_t side, int64_t first, int64_t count,
                          float* scratch) const {
    const int64_t origin = index(at.image, at.y, at.x) + first;
    if (dtype == DType::f32) return {static_cast<const float*>(data) + origin, w * c, c};
    for (int64_t y = window.y0; y < window.y1; ++y) {
      float* row = scratch + y * side * count;
      if (count == c) {
        load_f32(dtype, data, origin + (y * w + window.x0) * c, (window.x1 - window.x0) * c,
                 row + window.x0 * c);
        continue;
      }
      for (int64_t x = window.x0; x < window.x1; ++x)
        load_f32(dtype, data, origin + (y * w + x) * c, count, row + x * count);
    }
    return {scratch, side * count, count};
  }
};

}  // namespace hearth::cpu
