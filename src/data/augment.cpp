#include "data/augment.h"

#include <algorithm>

#include "base/philox.h"

namespace hearth::data {
namespace {

/// Changes brightness, contrast and saturation, in that order, as factors around 1.
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

}  // namespace

void Augmenter::apply(uint64_t key, int64_t sample, const uint8_t* pixels, float* out) const {
  const AugmentOptions& augment = options.augment;
  PhiloxSequence random(key, static_cast<uint64_t>(sample), 0xA06);
  const auto range = static_cast<uint32_t>(2 * augment.crop_padding + 1);
  const int64_t shift_y = static_cast<int64_t>(random.below(range)) - augment.crop_padding;
  const int64_t shift_x = static_cast<int64_t>(random.below(range)) - augment.crop_padding;
  const bool flip = augment.flip && random.below(2) == 1;
  for (int64_t y = 0; y < side; ++y) {
    for (int64_t x = 0; x < side; ++x) {
      const int64_t source_y = y + shift_y;
      const int64_t source_x = (flip ? side - 1 - x : x) + shift_x;
      const bool real = source_y >= 0 && source_y < side && source_x >= 0 && source_x < side;
      const uint8_t* source = pixels + (source_y * side + source_x) * channels;
      float* target = out + (y * side + x) * channels;
      for (int64_t c = 0; c < channels; ++c)
        target[c] = real ? static_cast<float>(source[c]) * (1.0F / 255) : 0.0F;
    }
  }
  if (augment.jitter > 0) {
    const float low = 1 - augment.jitter;
    const float high = 1 + augment.jitter;
    const Jitter jitter{random.uniform(low, high), random.uniform(low, high), random.uniform(low, high)};
    jitter.apply(out, side * side, channels);
  }
  for (int64_t i = 0; i < side * side * channels; ++i) {
    const auto c = static_cast<size_t>(i % channels);
    const float mean = options.mean[std::min(c, options.mean.size() - 1)];
    out[i] = (out[i] - mean) / options.std[std::min(c, options.std.size() - 1)];
  }
}

}  // namespace hearth::data
