#pragma once

#include <cstdint>

#include "data/images/image.h"

/// Operations on 8-bit RGB images with bitwise identical results on all machines.
namespace hearth::data {

/// Padding color around images (114), as in YOLOX.
inline constexpr uint8_t kFrameGray = 114;

/// Affine map from a point (x, y) of one image to another: (xx x + xy y + x0, yx x + yy y + y0). Pixels are
/// unit squares; the first one covers [0, 1).
struct Affine {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;

  /// Returns the inverse map; the determinant must not be 0.
  Affine inverse() const;
};

/// Returns an image filled with kFrameGray.
Image gray_image(int64_t height, int64_t width);

/// Copies the rectangle of `height` x `width` pixels at (from_y, from_x) of `from` to (y, x) of `to`. Both
/// rectangles must be inside their images.
void paste(const Image& from, int64_t from_y, int64_t from_x, int64_t height, int64_t width, Image& to,
           int64_t y, int64_t x);

/// Transforms an image with bilinear interpolation. `map` maps source coordinates to result coordinates.
/// Pixels outside of the source, and its outermost pixels, are gray (kFrameGray).
Image warp(const Image& from, const Affine& map, int64_t height, int64_t width);

/// Mirrors the image left to right.
void mirror(Image& image);

/// Replaces `image` by the mean of both images, rounded down; their sizes must be equal.
void blend(Image& image, const Image& other);

/// Adds to hue (in units of 2 degrees, range 180), saturation and value (range 255), as in OpenCV's 8-bit
/// HSV; saturation and value are clamped. Gray stays gray.
void shift_hsv(Image& image, int hue, int saturation, int value);

}  // namespace hearth::data
