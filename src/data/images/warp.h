#pragma once

#include <cstdint>

#include "data/images/image.h"

/// Changes to RGB pictures of 8 bits, the same to the bit on every machine.
namespace hearth::data {

/// What stands around pictures, as in YOLOX.
inline constexpr uint8_t kFrameGray = 114;

/// Where a point of one picture lies in another: (xx x + xy y + x0, yx x + yy y + y0). Pixels are squares of
/// side 1, the first from 0 to 1.
struct Affine {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;

  /// Its determinant must not be 0.
  Affine inverse() const;
};

/// A gray picture.
Image gray_image(int64_t height, int64_t width);

/// Copies `height` x `width` pixels of `from` at (from_y, from_x) to (y, x); all must be inside.
void paste(const Image& from, int64_t from_y, int64_t from_x, int64_t height, int64_t width, Image& to,
           int64_t y, int64_t x);

/// The picture seen through `map` (from it to the result), bilinear; gray outside. The outermost pixels of
/// `from` count as its gray surroundings.
Image warp(const Image& from, const Affine& map, int64_t height, int64_t width);

/// Left to right.
void mirror(Image& image);

/// The rounded-down mean of two pictures of one size, into the first.
void blend(Image& image, const Image& other);

/// Shifts hue by half degrees (as in 8 bits: of 180), saturation and value of 255, which stay within their
/// bounds. Gray stays gray.
void shift_hsv(Image& image, int hue, int saturation, int value);

}  // namespace hearth::data
