#include "data/image.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace hearth::data {
namespace {

/// Source pixels and weights of one target pixel along one axis.
struct Tap {
  int64_t first = 0;
  std::vector<float> weights;
};

/// A triangle filter as wide as the larger of the two pixel sizes: bilinear when growing, averaging when
/// shrinking.
std::vector<Tap> make_taps(int64_t in, int64_t out) {
  std::vector<Tap> taps(static_cast<size_t>(out));
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double radius = std::max(1.0, scale);
  for (int64_t i = 0; i < out; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale - 0.5;
    Tap& tap = taps[static_cast<size_t>(i)];
    tap.first = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(centre - radius)));
    const int64_t last = std::min(in - 1, static_cast<int64_t>(std::floor(centre + radius)));
    float sum = 0;
    for (int64_t k = tap.first; k <= last; ++k) {
      tap.weights.push_back(static_cast<float>(1 - std::fabs(static_cast<double>(k) - centre) / radius));
      sum += tap.weights.back();
    }
    for (float& weight : tap.weights) weight /= sum;
  }
  return taps;
}

using Pixel = std::array<uint8_t, 4>;

/// Red, green, blue and alpha of a pixel of any kind.
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
  // PIL's fixed-point luma: the three weights add up to exactly 1.
  out[0] = static_cast<uint8_t>((pixel[0] * 19595U + pixel[1] * 38470U + pixel[2] * 7471U + 0x8000U) >> 16);
  if (channels == 2) out[1] = pixel[3];
}

}  // namespace

void check_image_size(int64_t height, int64_t width, std::string_view name) {
  if (height > kMaxImageSide || width > kMaxImageSide || height * width > kMaxImagePixels)
    user_error("{}: expected a picture of at most {} pixels and {} a side, got {}x{}", name, kMaxImagePixels,
               kMaxImageSide, width, height);
}

Image convert(Image image, int64_t channels) {
  HEARTH_CHECK(channels >= 1 && channels <= 4);
  if (image.channels == channels) return image;
  const int64_t num_pixels = image.height * image.width;
  Image out{.height = image.height, .width = image.width, .channels = channels};
  out.pixels.resize(static_cast<size_t>(num_pixels * channels));
  for (int64_t i = 0; i < num_pixels; ++i)
    gather(spread(&image.pixels[static_cast<size_t>(i * image.channels)], image.channels), channels,
           &out.pixels[static_cast<size_t>(i * channels)]);
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

Image decode_image(std::span<const std::byte> bytes, int channels, std::string_view name) {
  if (bytes.size() >= 2 && bytes[0] == std::byte{0x89} && bytes[1] == std::byte{'P'}) {
    return decode_png(bytes, channels, name);
  }
  if (bytes.size() >= 2 && bytes[0] == std::byte{0xFF} && bytes[1] == std::byte{0xD8}) {
    return decode_jpeg(bytes, channels, name);
  }
  if (bytes.empty()) user_error("{}: expected a PNG or a JPEG, but the file is empty", name);
  user_error("{}: expected a PNG or a JPEG, but its first bytes are those of neither", name);
}

Image resize(const Image& image, int64_t height, int64_t width) {
  if (image.height == height && image.width == width) return image;
  const std::vector<Tap> rows = make_taps(image.height, height);
  const std::vector<Tap> columns = make_taps(image.width, width);
  const int64_t channels = image.channels;
  std::vector<float> wide(static_cast<size_t>(image.height * width * channels));
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const Tap& tap = columns[static_cast<size_t>(x)];
      for (int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (size_t k = 0; k < tap.weights.size(); ++k) {
          const auto source = (y * image.width + tap.first + static_cast<int64_t>(k)) * channels + c;
          sum += tap.weights[k] * static_cast<float>(image.pixels[static_cast<size_t>(source)]);
        }
        wide[static_cast<size_t>((y * width + x) * channels + c)] = sum;
      }
    }
  }
  Image out{.height = height, .width = width, .channels = channels, .pixels = {}};
  out.pixels.resize(static_cast<size_t>(height * width * channels));
  for (int64_t y = 0; y < height; ++y) {
    const Tap& tap = rows[static_cast<size_t>(y)];
    for (int64_t i = 0; i < width * channels; ++i) {
      float sum = 0.5F;
      for (size_t k = 0; k < tap.weights.size(); ++k) {
        sum += tap.weights[k] *
               wide[static_cast<size_t>((tap.first + static_cast<int64_t>(k)) * width * channels + i)];
      }
      out.pixels[static_cast<size_t>(y * width * channels + i)] =
          static_cast<uint8_t>(std::clamp(sum, 0.0F, 255.0F));
    }
  }
  return out;
}

}  // namespace hearth::data
