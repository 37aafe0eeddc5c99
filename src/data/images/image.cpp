#include "data/images/image.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace hearth::data {
namespace {

/// Computes the source pixels and weights (taps) of each of `out` target pixels for a triangle filter, whose
/// width is that of the larger of a source and a target pixel: bilinear interpolation when enlarging,
/// averaging when shrinking. `extent`: how many of the `in` source pixels belong to the image (see
/// ImageArea).
void make_taps(int64_t in, double extent, int64_t out, ResizeTaps& result) {
  result.taps.clear();
  result.weights.clear();
  const double scale = extent / static_cast<double>(out);
  const double radius = std::max(1.0, scale);
  for (int64_t i = 0; i < out; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale - 0.5;
    const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(center - radius)));
    const int64_t last = std::min(in - 1, static_cast<int64_t>(std::floor(center + radius)));
    result.taps.push_back({first, result.weights.size(), last - first + 1});
    float sum = 0;
    for (int64_t k = first; k <= last; ++k) {
      const auto weight = static_cast<float>(1 - std::fabs(static_cast<double>(k) - center) / radius);
      result.weights.push_back(weight);
      sum += weight;
    }
    for (size_t k = result.taps.back().weight; k < result.weights.size(); ++k) result.weights[k] /= sum;
  }
}

using Pixel = std::array<uint8_t, 4>;

/// Returns red, green, blue and alpha of a pixel with 1 to 4 channels.
Pixel spread(const uint8_t* in, int64_t channels) {
  const bool gray = channels < 3;
  const uint8_t alpha = channels == 4 ? in[3] : channels == 2 ? in[1] : 255;
  return {in[0], in[gray ? 0 : 1], in[gray ? 0 : 2], alpha};
}

void gather(const Pixel& pixel, int64_t channels, uint8_t* out) {
  if (channels >= 3) {
    std::copy_n(pixel.begin(), channels, out);
    return;
  }
  // PIL's fixed-point luma; the three weights add up to exactly 1.
  out[0] = static_cast<uint8_t>((pixel[0] * 19595U + pixel[1] * 38470U + pixel[2] * 7471U + 0x8000U) >> 16);
  if (channels == 2) out[1] = pixel[3];
}

}  // namespace

void check_image_size(int64_t height, int64_t width, std::string_view name) {
  if (height > kMaxImageSide || width > kMaxImageSide || height * width > kMaxImagePixels)
    user_error("{}: the image has {}x{} pixels; make it at most {} a side and {} in total", name, width,
               height, kMaxImageSide, kMaxImagePixels);
}

void check_density(int64_t size, int64_t max_per_byte, size_t file_bytes, std::string_view name) {
  if (size / max_per_byte > static_cast<int64_t>(file_bytes))
    user_error("{}: the file has only {} bytes, too few for the image size in its header; replace the file",
               name, file_bytes);
}

namespace {

void convert_into(const Image& image, int64_t channels, Image& out) {
  HEARTH_CHECK(channels >= 1 && channels <= 4);
  const int64_t num_pixels = image.height * image.width;
  out.height = image.height;
  out.width = image.width;
  out.channels = channels;
  out.pixels.resize(static_cast<size_t>(num_pixels * channels));
  for (int64_t i = 0; i < num_pixels; ++i)
    gather(spread(&image.pixels[static_cast<size_t>(i * image.channels)], image.channels), channels,
           &out.pixels[static_cast<size_t>(i * channels)]);
}

}  // namespace

Image convert(Image image, int64_t channels) {
  HEARTH_CHECK(channels >= 1 && channels <= 4);
  if (image.channels == channels) return image;
  Image out;
  convert_into(image, channels, out);
  return out;
}

namespace {

void orient_into(const Image& image, int orientation, Image& out) {
  // Orientations 5 to 8 swap rows and columns (EXIF 2.32, 4.6.5.1).
  const bool transposed = orientation >= 5;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  out.height = transposed ? image.width : image.height;
  out.width = transposed ? image.height : image.width;
  out.channels = image.channels;
  out.pixels.resize(image.pixels.size());
  uint8_t* to = out.pixels.data();
  for (int64_t i = 0; i < out.height; ++i) {
    for (int64_t k = 0; k < out.width; ++k, to += image.channels) {
      const int64_t y = transposed ? k : i, x = transposed ? i : k;
      const int64_t row = from_bottom ? image.height - 1 - y : y,
                    column = from_right ? image.width - 1 - x : x;
      std::copy_n(&image.pixels[static_cast<size_t>((row * image.width + column) * image.channels)],
                  image.channels, to);
    }
  }
}

}  // namespace

Image orient(Image image, int orientation) {
  if (orientation == 1) return image;
  Image out;
  orient_into(image, orientation, out);
  return out;
}

Image enlarge(const Image& image, int64_t factor) {
  HEARTH_CHECK(factor >= 1);
  Image out{.height = image.height * factor, .width = image.width * factor, .channels = image.channels};
  out.pixels.resize(image.pixels.size() * static_cast<size_t>(factor * factor));
  uint8_t* to = out.pixels.data();
  for (int64_t y = 0; y < out.height; ++y) {
    const uint8_t* row = image.pixels.data() + y / factor * image.width * image.channels;
    for (int64_t x = 0; x < out.width; ++x, to += image.channels)
      std::copy_n(row + x / factor * image.channels, image.channels, to);
  }
  return out;
}

namespace {

ImageArea area_of(const Image& image) {
  return {static_cast<double>(image.height), static_cast<double>(image.width)};
}

/// Computes the weighted sum of the source rows of a tap. The inner loop is over contiguous memory so that
/// the compiler can vectorize it.
void sum_rows(const Image& image, const ResizeTaps::Tap& tap, const float* weights,
              std::vector<float>& sums) {
  const auto row_values = static_cast<size_t>(image.width * image.channels);
  sums.assign(row_values, 0.0F);
  for (int64_t k = 0; k < tap.count; ++k) {
    const uint8_t* row = image.pixels.data() + static_cast<size_t>(tap.first + k) * row_values;
    const float weight = weights[k];
    float* out = sums.data();
    for (size_t i = 0; i < row_values; ++i) out[i] += weight * static_cast<float>(row[i]);
  }
}

/// Resizes one row, `sums`, along its width and rounds it to bytes.
template <size_t Channels>
void sum_columns(const ResizeTaps& columns, const float* sums, uint8_t* out) {
  for (const ResizeTaps::Tap& tap : columns.taps) {
    const float* weights = &columns.weights[tap.weight];
    const float* from = sums + static_cast<size_t>(tap.first) * Channels;
    std::array<float, Channels> values;
    values.fill(0.5F);
    for (int64_t k = 0; k < tap.count; ++k, from += Channels)
      for (size_t c = 0; c < Channels; ++c) values[c] += weights[k] * from[c];
    for (size_t c = 0; c < Channels; ++c) *out++ = static_cast<uint8_t>(std::clamp(values[c], 0.0F, 255.0F));
  }
}

void resize_into(const Image& image, const ImageArea& area, Extent size, ImageBuffers& buffers) {
  make_taps(image.height, area.height, size.height, buffers.rows);
  make_taps(image.width, area.width, size.width, buffers.columns);
  buffers.resized.height = size.height;
  buffers.resized.width = size.width;
  buffers.resized.channels = image.channels;
  buffers.resized.pixels.resize(static_cast<size_t>(size.num_pixels() * image.channels));
  constexpr std::array kByChannels{sum_columns<1>, sum_columns<2>, sum_columns<3>, sum_columns<4>};
  const auto sum_row = kByChannels.at(static_cast<size_t>(image.channels - 1));
  uint8_t* out = buffers.resized.pixels.data();
  // Runs the vertical pass first: the horizontal pass is slower, and this way it processes only as many rows
  // as the result has.
  for (const ResizeTaps::Tap& tap : buffers.rows.taps) {
    sum_rows(image, tap, &buffers.rows.weights[tap.weight], buffers.wide);
    sum_row(buffers.columns, buffers.wide.data(), out);
    out += size.width * image.channels;
  }
}

}  // namespace

Image decode_image(std::span<const std::byte> bytes, int channels, std::string_view name, Exif exif) {
  Image image;
  decode_stored(bytes, name, Pixels::colors, kMaxImageSide, image);
  if (channels != 0) image = convert(std::move(image), channels);
  return orient(std::move(image), orientation_of(bytes, name, exif));
}

Image decode_numbers(std::span<const std::byte> bytes, std::string_view name, Exif exif) {
  Image image;
  decode_stored(bytes, name, Pixels::numbers, kMaxImageSide, image);
  return orient(std::move(image), orientation_of(bytes, name, exif));
}

namespace {

const Image& as_channels(const Image& image, int channels, ImageBuffers& buffers) {
  if (image.channels == channels) return image;
  convert_into(image, channels, buffers.converted);
  return buffers.converted;
}

const Image& as_upright(const Image& image, int orientation, ImageBuffers& buffers) {
  if (orientation == 1) return image;
  orient_into(image, orientation, buffers.upright);
  return buffers.upright;
}

}  // namespace

const Image& read_image(std::span<const std::byte> bytes, int channels, std::string_view name,
                        ImageBuffers& buffers, Exif exif) {
  decode_stored(bytes, name, Pixels::colors, kMaxImageSide, buffers.decoded);
  return as_upright(as_channels(buffers.decoded, channels, buffers), orientation_of(bytes, name, exif),
                    buffers);
}

const Image& read_image(std::span<const std::byte> bytes, int channels, Extent size, std::string_view name,
                        ImageBuffers& buffers, Exif exif) {
  const int orientation = orientation_of(bytes, name, exif);
  // Resizes before orienting: the pixel grid of a JPEG decoded at reduced size starts at a corner of the
  // stored image.
  if (orientation >= 5) size = {size.width, size.height};
  const ImageArea area = decode_stored(bytes, name, Pixels::colors, size, buffers.decoded);
  const Image& image = as_channels(buffers.decoded, channels, buffers);
  if (image.size() == size) return as_upright(image, orientation, buffers);
  resize_into(image, area, size, buffers);
  return as_upright(buffers.resized, orientation, buffers);
}

const Image& resize(const Image& image, Extent size, ImageBuffers& buffers) {
  if (image.size() == size) return image;
  resize_into(image, area_of(image), size, buffers);
  return buffers.resized;
}

Image resize(const Image& image, Extent size) {
  if (image.size() == size) return image;
  ImageBuffers buffers;
  resize_into(image, area_of(image), size, buffers);
  return std::move(buffers.resized);
}

}  // namespace hearth::data
