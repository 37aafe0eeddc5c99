#pragma once

#include <array>
#include <cstdint>

namespace hearth::data {

/// What a generated image shows: the label, the box around the shape (pixels, half-open) and, on request,
/// its mask.
struct ShapeScene {
  int32_t label = 0;
  std::array<int64_t, 4> box = {};  ///< x0, y0, x1, y1
};

inline constexpr int64_t kNumShapes = 10;

/// Draws image `index` of the series `seed`: one of ten shapes in random color, size, turn and place
/// over an uneven background with specks and noise. A pure function of its arguments. `pixels` is side x side
/// x 3; `mask`, side x side, may be null.
ShapeScene draw_shape(uint64_t seed, int64_t index, int64_t side, uint8_t* pixels, uint8_t* mask);

}  // namespace hearth::data
