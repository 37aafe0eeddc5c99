#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {

/// Height and width in pixels of an output tile, and of the input patch that the tile depends on, in
/// F(4x4,3x3).
inline constexpr int64_t kTileSide = 4;
inline constexpr int64_t kPatchSide = 6;

/// Returns the stride in floats between the arrays of the 36 positions: `floats` rounded up to an odd number
/// of cache lines, so that a tile's 36 values are in different cache sets.
inline int64_t odd_lines(int64_t floats) {
  const int64_t lines = (floats + 15) / 16;
  return (lines + 1 - lines % 2) * 16;
}

/// Position of a tile. A dilated convolution is computed as undilated convolutions of subsampled images,
/// which consist of every dilation-th row and column from (first_y, first_x) on; (y, x) is the tile's first
/// pixel in the subsampled image.
struct Tile {
  int64_t image, first_y, first_x, y, x;
};

/// Numbering of the tiles of a batch: by image, then by subsampled image (see Tile), then by rows of tiles.
struct TileGrid {
  int64_t dilation, rows, columns;
  TileGrid(int64_t out_h, int64_t out_w, int64_t dilation_of_taps)
      : dilation(dilation_of_taps), rows(tiles_of(out_h)), columns(tiles_of(out_w)) {}
  int64_t per_image() const { return dilation * dilation * rows * columns; }
  Tile at(int64_t index) const {
    const int64_t part = index / (rows * columns), tile = index % (rows * columns);
    return {part / (dilation * dilation), part / dilation % dilation, part % dilation,
            tile / columns * kTileSide, tile % columns * kTileSide};
  }

 private:
  int64_t tiles_of(int64_t length) const {
    return (length + kTileSide * dilation - 1) / (kTileSide * dilation);
  }
};

/// An NHWC image tensor from which f32 tiles are read.
struct Images {
  DType dtype;
  const void* data;
  int64_t h, w, c, dilation;

  /// Returns the element index of the tile's first pixel.
  int64_t index(const Tile& at) const {
    return ((at.image * h + at.first_y + at.y * dilation) * w + at.first_x + at.x * dilation) * c;
  }
  /// Returns the range of rows and columns of a side x side tile that is inside of the image.
  TileWindow window(const Tile& at, int64_t side) const {
    const int64_t rows = (h - at.first_y + dilation - 1) / dilation;
    const int64_t columns = (w - at.first_x + dilation - 1) / dilation;
    return {std::max<int64_t>(0, -at.y), std::min(side, rows - at.y), std::max<int64_t>(0, -at.x),
            std::min(side, columns - at.x)};
  }

  /// Returns channels [first, first + count) of a tile: the image itself if it is f32, otherwise a copy of
  /// the window in `scratch` (side * side * count floats).
  Field<const float> tile(const Tile& at, TileWindow window, int64_t side, int64_t first, int64_t count,
                          float* scratch) const {
    const int64_t origin = index(at) + first, across = dilation * c, down = w * across;
    if (dtype == DType::f32) return {static_cast<const float*>(data) + origin, down, across};
    for (int64_t y = window.y0; y < window.y1; ++y) {
      float* row = scratch + y * side * count;
      if (count == across) {
        load_f32(dtype, data, origin + y * down + window.x0 * c, (window.x1 - window.x0) * c,
                 row + window.x0 * c);
        continue;
      }
      for (int64_t x = window.x0; x < window.x1; ++x)
        load_f32(dtype, data, origin + y * down + x * across, count, row + x * count);
    }
    return {scratch, side * count, count};
  }
};

}  // namespace hearth::cpu
