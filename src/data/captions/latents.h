#pragma once

#include <cstdint>
#include <span>

#include "data/dataset.h"
#include "data/images/image.h"

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
  /// Whether it is the same picture as the one before, which an epoch has several times.
  virtual bool is_repeat(int64_t /*index*/) const { return false; }
  /// What its loss counts.
  virtual double weight(int64_t /*index*/) const { return 1; }
  /// The class, where there are classes.
  virtual int32_t label(int64_t /*index*/) const { return 0; }
  /// Text embeddings [tokens, width] and the pooled vector, where there is text; index -1: of the empty text.
  virtual void text(int64_t /*index*/, std::span<float> /*text*/, std::span<float> /*pooled*/) const {}
};

/// The largest height and the largest width of any.
Extent largest_extent(const LatentSource& source);

/// Whether a row that is drawn from pictures and mirrored ones alike has the mirrored one.
bool is_mirrored(uint64_t key, int64_t index);

/// Images of a dataset as they are, in [-1, 1], with their labels. The dataset outlives it.
class PixelLatents : public LatentSource {
 public:
  /// With `flip`, half of the images that are read are mirrored.
  explicit PixelLatents(const Dataset& dataset, bool flip = false) : dataset_(dataset), flip_(flip) {}
  int64_t size() const override { return dataset_.size(); }
  int64_t channels() const override { return dataset_.channels(); }
  Extent extent(int64_t) const override { return dataset_.image_size(); }
  void read(int64_t index, uint64_t key, std::span<float> latents) const override;
  int32_t label(int64_t index) const override { return dataset_.label(index); }

 private:
  const Dataset& dataset_;
  bool flip_;
};
/// The other way: an image of latents in [-1, 1], gray or RGB.
Image image_of(std::span<const float> latents, int64_t channels, Extent size);

/// Latents [channels, height, width] as tokens: patches of patch x patch row by row, the features of each in
/// the order (channel, dy, dx), as FLUX packs them.
void to_tokens(std::span<const float> latents, int64_t channels, Extent size, int64_t patch,
               std::span<float> tokens);
void from_tokens(std::span<const float> tokens, int64_t channels, Extent size, int64_t patch,
                 std::span<float> latents);

}  // namespace hearth::data
