#pragma once

#include "data/captions/latents.h"
#include "tasks/diffuse/encoded_images.h"

namespace hearth::tasks {

struct LabeledLatentsOptions {
  Extent pixels;  ///< size that images are resized to; sides are multiples of factor * patch
  bool flip = false;
  LatentFormat format;
  uint64_t coder = 0;  ///< hash of the autoencoder
  fs::path cache;      ///< cache folder
};

/// Images of a dataset with labels, as latents in a cache. With `flip` the cache also holds the latents of
/// the mirrored images, and half of all reads return those.
class LabeledLatents : public data::LatentSource {
 public:
  /// Hashes every image. The dataset must outlive the source.
  LabeledLatents(const data::Dataset& images, const LabeledLatentsOptions& options);

  /// Number of images, including mirrored ones, that the cache lacks.
  int64_t num_missing() const { return encoded_.num_missing(); }
  /// Encodes the missing images into the cache (EncodedImages::make).
  void make(FunctionRef<std::vector<float>(const data::Image&)> encode,
            FunctionRef<void(int64_t count)> done) const;

  int64_t size() const override { return images_.size(); }
  int64_t channels() const override { return options_.format.channels; }
  Extent extent(int64_t index) const override { return encoded_.extent(static_cast<size_t>(index)); }
  void read(int64_t index, uint64_t key, std::span<float> latents) const override;
  int32_t label(int64_t index) const override { return images_.label(index); }

 private:
  data::Image image(size_t number) const;

  const data::Dataset& images_;
  LabeledLatentsOptions options_;
  EncodedImages encoded_;  ///< all images, then all of them mirrored
};

}  // namespace hearth::tasks
