#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/extent.h"

namespace hearth::data {

struct BoxedImages;

/// Ground truth of a generated image: label, bounding box of the shape (pixels, half-open) and,
/// on request, mask.
struct ShapeScene {
  int32_t label = 0;
  std::array<int64_t, 4> box = {};  ///< x0, y0, x1, y1
};

/// Number of kinds of shapes; each kind is a class.
inline constexpr int64_t kNumShapes = 10;
/// Returns the names of the shapes by label: circle, square, ...
std::vector<std::string> shape_names();

/// Throws a UserError if the image size or number of images is not possible.
void check_shapes(Extent size, int64_t count);
/// Returns the seed for draw_shape() that generates the training or test images of a run. The images of the
/// splits differ.
uint64_t seed_of_split(uint64_t seed, std::string_view split);

/// Draws image `index` of the infinite series that `seed` selects: one of ten shapes with random color, size,
/// rotation and position over an uneven background with specks and noise. A pure function of its arguments.
/// `pixels`: RGB, height x width x 3; `mask`: height x width, may be null.
ShapeScene draw_shape(uint64_t seed, int64_t index, Extent size, uint8_t* pixels, uint8_t* mask);

/// Returns images 0 to `count` - 1 of draw_shape() with seed `series`, with one box each. Images are drawn
/// when they are read.
BoxedImages shape_boxes(uint64_t series, int64_t count, Extent size);

}  // namespace hearth::data
