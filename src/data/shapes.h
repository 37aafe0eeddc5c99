#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/extent.h"

namespace hearth::data {

struct BoxedPictures;

/// What a generated image shows: the label, the box around the shape (pixels, half-open) and, on request,
/// its mask.
struct ShapeScene {
  int32_t label = 0;
  std::array<int64_t, 4> box = {};  ///< x0, y0, x1, y1
};

inline constexpr int64_t kNumShapes = 10;
/// In the order of the labels: circle, square, ...
std::vector<std::string> shape_names();

/// UserError for images of a size, or a number of them, that cannot be drawn.
void check_shapes(Extent size, int64_t count);
/// What draw_shape calls the seed of the training or the test images of a run: two series that never meet.
uint64_t series_of(uint64_t seed, std::string_view split);

/// Draws image `index` of the series `seed`: one of ten shapes in random color, size, turn and place
/// over an uneven background with specks and noise. A pure function of its arguments. `pixels` is height x
/// width x 3; `mask`, height x width, may be null.
ShapeScene draw_shape(uint64_t seed, int64_t index, Extent size, uint8_t* pixels, uint8_t* mask);

/// Pictures `0` to `count` of that series with a box each, drawn when they are read.
BoxedPictures shape_boxes(uint64_t series, int64_t count, Extent size);

}  // namespace hearth::data
