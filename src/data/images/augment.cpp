#include "data/images/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/philox.h"

namespace hearth::data {
namespace {

constexpr size_t kMaxChannels = 4;

/// Factors of brightness, contrast and saturation, applied in that order; a factor of 1 changes nothing.
struct Jitter {
  float brightness, contrast, saturation;

  void apply(float* image, int64_t num_pixels, int64_t channels) const {
    double sum = 0;
    for (int64_t i = 0; i < num_pixels * channels; ++i) {
      image[i] *= brightness;
      sum += static_cast<double>(image[i]);
    }
    const auto mean = static_cast<float>(sum / static_cast<double>(num_pixels * channels));
    for (int64_t p = 0; p < num_pixels; ++p) {
      float* pixel = image + p * channels;
      float gray = 0;
      for (int64_t c = 0; c < channels; ++c) {
        pixel[c] = mean + (pixel[c] - mean) * contrast;
        gray += pixel[c] / static_cast<float>(channels);
      }
      for (int64_t c = 0; c < channels; ++c)
        pixel[c] = std::clamp(gray + (pixel[c] - gray) * saturation, 0.0F, 1.0F);
    }
  }
};

/// Random crop of an image: offset in pixels, and whether the crop is mirrored.
struct CropOffset {
  int64_t shift_y, shift_x;
  bool flip;
};

/// Normalized value of each byte of each channel: [channel][byte].
using Table = std::array<std::array<float, 256>, kMaxChannels>;

float channel_value(const std::vector<float>& values, size_t channel) {
  return values[std::min(channel, values.size() - 1)];
}

Table make_table(const PixelOptions& options, int64_t channels, bool normalized) {
  Table table;
  for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
    const float mean = normalized ? channel_value(options.mean, c) : 0;
    const float scale = normalized ? 1 / channel_value(options.std, c) : 1;
    for (size_t byte = 0; byte < 256; ++byte)
      table[c][byte] = (static_cast<float>(byte) * (1.0F / 255) - mean) * scale;
  }
  return table;
}

/// Copies the crop of an image into `out`, mirrored if requested and normalized by `table`. Pixels outside of
/// the image (padding) are black.
void place(const CropOffset& placement, const Table& table, Extent size, int64_t channels, const uint8_t* in,
           float* out) {
  constexpr std::array<uint8_t, kMaxChannels> kBlack{};
  for (int64_t y = 0; y < size.height; ++y) {
    const int64_t from_y = y + placement.shift_y;
    const bool row_inside = from_y >= 0 && from_y < size.height;
    for (int64_t x = 0; x < size.width; ++x, out += channels) {
      const int64_t from_x = (placement.flip ? size.width - 1 - x : x) + placement.shift_x;
      const bool inside = row_inside && from_x >= 0 && from_x < size.width;
      const uint8_t* source = inside ? in + (from_y * size.width + from_x) * channels : kBlack.data();
      for (int64_t c = 0; c < channels; ++c) out[c] = table[static_cast<size_t>(c)][source[c]];
    }
  }
}

void normalize(const PixelOptions& options, int64_t num_pixels, int64_t channels, float* image) {
  for (int64_t i = 0; i < num_pixels; ++i, image += channels) {
    for (int64_t c = 0; c < channels; ++c) {
      const float mean = channel_value(options.mean, static_cast<size_t>(c));
      image[c] = (image[c] - mean) / channel_value(options.std, static_cast<size_t>(c));
    }
  }
}

void check_list(std::string_view key, const std::vector<float>& values, int64_t channels) {
  if (values.size() != 1 && std::ssize(values) != channels)
    user_error("expected one value or {} (one per channel) for {}, got {}", channels, key, values.size());
}

}  // namespace

void check_pixels(const PixelOptions& options, Extent size, int64_t channels) {
  HEARTH_CHECK(channels >= 1 && channels <= static_cast<int64_t>(kMaxChannels));
  const AugmentOptions& augment = options.augment;
  if (augment.crop_padding < 0 || augment.crop_padding > size.shorter())
    user_error("expected a crop padding from 0 to the image's side of {}, got {}", size.shorter(),
               augment.crop_padding);
  if (!(augment.jitter >= 0 && augment.jitter <= 1))
    user_error("expected a color jitter from 0 to 1, got {}", augment.jitter);
  check_list("the mean", options.mean, channels);
  check_list("the standard deviation", options.std, channels);
  for (const float value : options.std)
    if (!(value > 0)) user_error("expected standard deviations above 0, got {}", value);
}

void Augmenter::apply(uint64_t key, int64_t sample, const uint8_t* pixels, float* out) const {
  const AugmentOptions& augment = options.augment;
  PhiloxSequence random(key, static_cast<uint64_t>(sample), 0xA06);
  const auto range = static_cast<uint32_t>(2 * augment.crop_padding + 1);
  const int64_t shift_y = static_cast<int64_t>(random.below(range)) - augment.crop_padding;
  const int64_t shift_x = static_cast<int64_t>(random.below(range)) - augment.crop_padding;
  const bool flip = augment.flip && random.below(2) == 1;
  const bool jittered = augment.jitter > 0;
  const Table table = make_table(options, channels, !jittered);
  place({shift_y, shift_x, flip}, table, size, channels, pixels, out);
  if (!jittered) return;
  const float low = 1 - augment.jitter;
  const float high = 1 + augment.jitter;
  // A braced initializer evaluates the three draws from left to right, so that results do not depend on the
  // compiler.
  const Jitter jitter{random.uniform(low, high), random.uniform(low, high), random.uniform(low, high)};
  jitter.apply(out, size.num_pixels(), channels);
  normalize(options, size.num_pixels(), channels, out);
}

Image image_of_normalized(const PixelOptions& options, Extent size, int64_t channels, const float* pixels) {
  Image made{.height = size.height, .width = size.width, .channels = channels};
  made.pixels.resize(static_cast<size_t>(size.num_pixels() * channels));
  for (size_t i = 0; i < made.pixels.size(); ++i) {
    const size_t channel = i % static_cast<size_t>(channels);
    const float value =
        pixels[i] * channel_value(options.std, channel) + channel_value(options.mean, channel);
    made.pixels[i] = static_cast<uint8_t>(std::lround(255 * std::clamp(value, 0.0F, 1.0F)));
  }
  return made;
}

}  // namespace hearth::data
