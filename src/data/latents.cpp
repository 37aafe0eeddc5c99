#include "data/latents.h"

#include "base/error.h"

namespace hearth::data {
namespace {

/// Calls body(place in the latents, place in the tokens) for every number.
template <typename Body>
void for_places(int64_t channels, Extent size, int64_t patch, Body body) {
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

void to_tokens(std::span<const float> latents, int64_t channels, Extent size, int64_t patch,
               std::span<float> tokens) {
  for_places(channels, size, patch, [&](size_t place, size_t token) { tokens[token] = latents[place]; });
}

void from_tokens(std::span<const float> tokens, int64_t channels, Extent size, int64_t patch,
                 std::span<float> latents) {
  for_places(channels, size, patch, [&](size_t place, size_t token) { latents[place] = tokens[token]; });
}

}  // namespace hearth::data
