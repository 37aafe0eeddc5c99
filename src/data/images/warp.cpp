// Affine warp in fixed-point arithmetic, so that results are bitwise identical on all machines: for each
// output row, the source coordinates of the first pixel and the step per pixel are rounded to 2^-20 pixel;
// after that, only integers are added. The range of output pixels whose four source neighbors are inside the
// image is computed once per row, so that the inner loop has no bounds checks. Colors are shifted in HSV as
// floats, in blocks of planes, which compilers vectorize.
#include "data/images/warp.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace hearth::data {
namespace {

/// Number of fractional bits of fixed-point coordinates (units of 2^-20 pixel).
constexpr int kShift = 20;
constexpr double kOne = 1 << kShift;

/// Returns a / b rounded down; b must be positive.
int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

/// Narrows the index range [first, last) to the steps i with 0 <= start + step * i < end.
void narrow(int64_t start, int64_t step, int64_t end, int64_t& first, int64_t& last) {
  if (step < 0) {
    // Mirrors the values, v to end - 1 - v, which maps [0, end) to itself and makes the step positive.
    start = end - 1 - start;
    step = -step;
  }
  if (step == 0) {
    if (start < 0 || start >= end) last = first;
    return;
  }
  first = std::max(first, -floor_divide(start, step));
  last = std::min(last, floor_divide(end - 1 - start, step) + 1);
}

/// Samples one row of output pixels by bilinear interpolation; all source neighbors must be inside the image.
void sample_row(const Image& from, int64_t x, int64_t y, int64_t step_x, int64_t step_y, int64_t count,
                uint8_t* out) {
  const int64_t stride = from.width * 3;
  for (int64_t i = 0; i < count; ++i, x += step_x, y += step_y, out += 3) {
    const uint8_t* at = from.pixels.data() + (y >> kShift) * stride + (x >> kShift) * 3;
    const auto right = static_cast<uint32_t>(x >> (kShift - 8)) & 255U;
    const auto below = static_cast<uint32_t>(y >> (kShift - 8)) & 255U;
    for (int64_t c = 0; c < 3; ++c) {
      const uint32_t top = at[c] * (256U - right) + at[c + 3] * right;
      const uint32_t bottom = at[stride + c] * (256U - right) + at[stride + c + 3] * right;
      out[c] = static_cast<uint8_t>((top * (256U - below) + bottom * below + 32768U) >> 16);
    }
  }
}

constexpr size_t kBlock = 256;
using Plane = std::array<float, kBlock>;

/// Returns the hue of a color in sixths of a circle; 0 for gray. `value`: maximum of the components;
/// `chroma`: maximum minus minimum.
float hue_of(float red, float green, float blue, float value, float chroma) {
  const float inverse = chroma > 0 ? 1 / chroma : 0.0F;
  const float by_red = (green - blue) * inverse;
  const float by_green = (blue - red) * inverse + 2;
  const float by_blue = (red - green) * inverse + 4;
  return value == red ? by_red : value == green ? by_green : by_blue;
}

/// Returns one RGB component of an HSV color. `turn`: 5 for red, 3 for green, 1 for blue, in sixths of a
/// circle.
float part_of(float hue, float turn, float value, float chroma) {
  float k = hue + turn;
  k = k < 0 ? k + 6 : k;
  k = k >= 6 ? k - 6 : k;
  return value - chroma * std::clamp(std::min(k, 4 - k), 0.0F, 1.0F);
}

void shift_block(Plane& red, Plane& green, Plane& blue, float hue_shift, float saturation_shift,
                 float value_shift) {
  for (size_t i = 0; i < kBlock; ++i) {
    const float r = red[i], g = green[i], b = blue[i];
    const float value = std::max(r, std::max(g, b));
    const float chroma = value - std::min(r, std::min(g, b));
    const float hue = hue_of(r, g, b, value, chroma) + hue_shift;
    const float saturation = chroma > 0 ? std::clamp(chroma / value + saturation_shift, 0.0F, 1.0F) : 0.0F;
    const float new_value = std::clamp(value + value_shift, 0.0F, 255.0F);
    const float new_chroma = new_value * saturation;
    red[i] = part_of(hue, 5, new_value, new_chroma);
    green[i] = part_of(hue, 3, new_value, new_chroma);
    blue[i] = part_of(hue, 1, new_value, new_chroma);
  }
}

}  // namespace

Affine Affine::inverse() const {
  const double determinant = xx * yy - xy * yx;
  HEARTH_CHECK(determinant != 0);
  Affine back{
      .xx = yy / determinant, .xy = -xy / determinant, .yx = -yx / determinant, .yy = xx / determinant};
  back.x0 = -(back.xx * x0 + back.xy * y0);
  back.y0 = -(back.yx * x0 + back.yy * y0);
  return back;
}

Image gray_image(int64_t height, int64_t width) {
  Image image{.height = height, .width = width, .channels = 3};
  image.pixels.assign(static_cast<size_t>(height * width * 3), kFrameGray);
  return image;
}

void paste(const Image& from, int64_t from_y, int64_t from_x, int64_t height, int64_t width, Image& to,
           int64_t y, int64_t x) {
  HEARTH_CHECK(from_y >= 0 && from_x >= 0 && from_y + height <= from.height && from_x + width <= from.width);
  HEARTH_CHECK(y >= 0 && x >= 0 && y + height <= to.height && x + width <= to.width);
  for (int64_t row = 0; row < height; ++row)
    std::memcpy(to.pixels.data() + ((y + row) * to.width + x) * 3,
                from.pixels.data() + ((from_y + row) * from.width + from_x) * 3,
                static_cast<size_t>(width * 3));
}

Image warp(const Image& from, const Affine& map, int64_t height, int64_t width) {
  const Affine back = map.inverse();
  Image image = gray_image(height, width);
  const auto fixed = [](double value) { return static_cast<int64_t>(std::llround(value * kOne)); };
  const int64_t step_x = fixed(back.xx), step_y = fixed(back.yx);
  for (int64_t row = 0; row < height; ++row) {
    const double y = static_cast<double>(row) + 0.5;
    const int64_t start_x = fixed(back.xx * 0.5 + back.xy * y + back.x0 - 0.5);
    const int64_t start_y = fixed(back.yx * 0.5 + back.yy * y + back.y0 - 0.5);
    int64_t first = 0, last = width;
    narrow(start_x, step_x, (from.width - 1) << kShift, first, last);
    narrow(start_y, step_y, (from.height - 1) << kShift, first, last);
    if (first < last)
      sample_row(from, start_x + first * step_x, start_y + first * step_y, step_x, step_y, last - first,
                 image.pixels.data() + (row * width + first) * 3);
  }
  return image;
}

void mirror(Image& image) {
  const int64_t channels = image.channels;
  for (int64_t row = 0; row < image.height; ++row) {
    uint8_t* left = image.pixels.data() + row * image.width * channels;
    for (uint8_t* right = left + (image.width - 1) * channels; left < right;
         left += channels, right -= channels)
      std::swap_ranges(left, left + channels, right);
  }
}

void blend(Image& image, const Image& other) {
  HEARTH_CHECK(image.pixels.size() == other.pixels.size());
  for (size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<uint8_t>((image.pixels[i] + other.pixels[i]) / 2);
}

void shift_hsv(Image& image, int hue, int saturation, int value) {
  if (hue == 0 && saturation == 0 && value == 0) return;
  const size_t num_pixels = image.pixels.size() / 3;
  Plane red{}, green{}, blue{};
  for (size_t first = 0; first < num_pixels; first += kBlock) {
    const size_t count = std::min(kBlock, num_pixels - first);
    uint8_t* pixels = image.pixels.data() + first * 3;
    for (size_t i = 0; i < count; ++i) {
      red[i] = pixels[3 * i];
      green[i] = pixels[3 * i + 1];
      blue[i] = pixels[3 * i + 2];
    }
    shift_block(red, green, blue, static_cast<float>(hue) / 30, static_cast<float>(saturation) / 255,
                static_cast<float>(value));
    for (size_t i = 0; i < count; ++i) {
      pixels[3 * i] = static_cast<uint8_t>(red[i] + 0.5F);
      pixels[3 * i + 1] = static_cast<uint8_t>(green[i] + 0.5F);
      pixels[3 * i + 2] = static_cast<uint8_t>(blue[i] + 0.5F);
    }
  }
}

}  // namespace hearth::data
