#include "data/image.h"

#include <algorithm>
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

}  // namespace

Image decode_image(std::span<const std::byte> bytes, int channels, std::string_view name) {
  if (bytes.size() >= 2 && bytes[0] == std::byte{0x89} && bytes[1] == std::byte{'P'}) {
    return decode_png(bytes, channels, name);
  }
  if (bytes.size() >= 2 && bytes[0] == std::byte{0xFF} && bytes[1] == std::byte{0xD8}) {
    return decode_jpeg(bytes, channels, name);
  }
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
