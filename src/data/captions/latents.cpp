#include "data/captions/latents.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/philox.h"

namespace hearth::data {
namespace {

/// Random number stream that decides whether a row is mirrored; lower streams are used for noise.
constexpr uint32_t kFlipStream = 16;

/// Calls body(index in the latents, index in the tokens) for each element.
template <typename Body>
void for_each_element(int64_t channels, Extent size, int64_t patch, Body body) {
  HEARTH_CHECK(size.height % patch == 0 && size.width % patch == 0);
  size_t token = 0;
  for (int64_t top = 0; top < size.height; top += patch)
    for (int64_t left = 0; left < size.width; left += patch)
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t y = top; y < top + patch; ++y)
          for (int64_t x = left; x < left + patch; ++x)
            body(static_cast<size_t>((c * size.height + y) * size.width + x), token++);
}

}  // namespace

Extent largest_extent(const LatentSource& source) {
  Extent largest = 0;
  for (int64_t i = 0; i < source.size(); ++i) {
    const Extent one = source.extent(i);
    largest = {std::max(largest.height, one.height), std::max(largest.width, one.width)};
  }
  return largest;
}

bool is_mirrored(uint64_t key, int64_t index) {
  return PhiloxSequence(key, static_cast<uint64_t>(index), kFlipStream).below(2) == 1;
}

void PixelLatents::read(int64_t index, uint64_t key, std::span<float> latents) const {
  const Extent size = dataset_.image_size();
  const int64_t channels = dataset_.channels();
  std::vector<uint8_t> pixels(latents.size());
  int32_t label = 0;
  dataset_.read(index, pixels.data(), &label);
  const bool mirrors = flip_ && is_mirrored(key, index);
  const uint8_t* pixel = pixels.data();
  for (int64_t y = 0; y < size.height; ++y)
    for (int64_t x = 0; x < size.width; ++x)
      for (int64_t c = 0; c < channels; ++c)
        latents[static_cast<size_t>((c * size.height + y) * size.width +
                                    (mirrors ? size.width - 1 - x : x))] =
            static_cast<float>(*pixel++) / 127.5F - 1;
}

Image image_of(std::span<const float> latents, int64_t channels, Extent size) {
  Image image{.height = size.height, .width = size.width, .channels = channels};
  image.pixels.resize(latents.size());
  for (int64_t i = 0; i < size.num_pixels(); ++i)
    for (int64_t c = 0; c < channels; ++c)
      image.pixels[static_cast<size_t>(i * channels + c)] = static_cast<uint8_t>(std::lround(
          std::clamp(127.5F * (latents[static_cast<size_t>(c * size.num_pixels() + i)] + 1), 0.0F, 255.0F)));
  return image;
}

void to_tokens(std::span<const float> latents, int64_t channels, Extent size, int64_t patch,
               std::span<float> tokens) {
  for_each_element(channels, size, patch,
                   [&](size_t place, size_t token) { tokens[token] = latents[place]; });
}

void from_tokens(std::span<const float> tokens, int64_t channels, Extent size, int64_t patch,
                 std::span<float> latents) {
  for_each_element(channels, size, patch,
                   [&](size_t place, size_t token) { latents[place] = tokens[token]; });
}

}  // namespace hearth::data
