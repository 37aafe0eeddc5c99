#pragma once

#include <cstdint>
#include <span>

#include "base/extent.h"

namespace hearth::data {

/// What a denoiser learns to make, by index: latents [channels, height, width] of pictures, as they are
/// noised (shifted and scaled), or the pictures themselves in [-1, 1]; and what they are to be made from. Any
/// number of threads read at once.
class LatentSource {
 public:
  virtual ~LatentSource() = default;
  virtual int64_t size() const = 0;
  virtual int64_t channels() const = 0;
  /// Of one's latents.
  virtual Extent extent(int64_t index) const = 0;
  /// `key` is of the random choices, as in data::Row. UserError where it cannot be read.
  virtual void read(int64_t index, uint64_t key, std::span<float> latents) const = 0;
  /// The class, where there are classes.
  virtual int32_t label(int64_t /*index*/) const { return 0; }
  /// Text embeddings [tokens, width] and the pooled vector, where there is text; index -1: of the empty text.
  virtual void text(int64_t /*index*/, std::span<float> /*text*/, std::span<float> /*pooled*/) const {}
};

/// Latents [channels, height, width] as tokens: patches of patch x patch row by row, the features of each in
/// the order (channel, dy, dx), as FLUX packs them.
void to_tokens(std::span<const float> latents, int64_t channels, Extent size, int64_t patch,
               std::span<float> tokens);
void from_tokens(std::span<const float> tokens, int64_t channels, Extent size, int64_t patch,
                 std::span<float> latents);

}  // namespace hearth::data
