#pragma once

#include <cstdint>
#include <span>

#include "data/dataset.h"
#include "data/images/image.h"

namespace hearth::data {

/// Training images of a denoiser, by index: their latents [channels, height, width], scaled and shifted as
/// the model expects, or their pixels in [-1, 1]; with conditions (class or text embeddings). Thread-safe.
class LatentSource {
 public:
  virtual ~LatentSource() = default;
  virtual int64_t size() const = 0;
  virtual int64_t channels() const = 0;
  /// Returns the height and width of an image's latents.
  virtual Extent extent(int64_t index) const = 0;
  /// Reads the latents of an item. `key`: key of random numbers, see data::Row. Throws a UserError if they
  /// cannot be read.
  virtual void read(int64_t index, uint64_t key, std::span<float> latents) const = 0;
  /// True if the item has the same image as the previous one, because the image occurs several times in an
  /// epoch.
  virtual bool is_repeat(int64_t /*index*/) const { return false; }
  /// Returns the weight of an item in the loss.
  virtual double weight(int64_t /*index*/) const { return 1; }
  /// Returns the class index of an item; 0 if the data has no classes.
  virtual int32_t label(int64_t /*index*/) const { return 0; }
  /// Reads the text embeddings [tokens, width] of an item and the pooled vector, if there are any. Index -1:
  /// the embeddings of the empty text.
  virtual void text(int64_t /*index*/, std::span<float> /*text*/, std::span<float> /*pooled*/) const {}
};

/// Returns the maximum height and the maximum width of all items.
Extent largest_extent(const LatentSource& source);

/// Decides randomly, with probability 1/2, whether row `index` is mirrored.
bool is_mirrored(uint64_t key, int64_t index);

/// Images of a dataset as pixels in [-1, 1], with their labels. The dataset must outlive it.
class PixelLatents : public LatentSource {
 public:
  /// `flip`: true to mirror each image with probability 1/2 when it is read.
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
/// Converts pixels in [-1, 1] to a gray or RGB image, the inverse of PixelLatents::read.
Image image_of(std::span<const float> latents, int64_t channels, Extent size);

/// Patchifies latents [channels, height, width] into tokens: patches of patch x patch in row-major order,
/// each with its features in the order (channel, dy, dx), as FLUX packs them.
void to_tokens(std::span<const float> latents, int64_t channels, Extent size, int64_t patch,
               std::span<float> tokens);
/// Inverse of to_tokens().
void from_tokens(std::span<const float> tokens, int64_t channels, Extent size, int64_t patch,
                 std::span<float> latents);

}  // namespace hearth::data
