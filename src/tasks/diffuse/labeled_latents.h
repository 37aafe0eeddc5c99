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

/// Latents of the images of a labeled dataset, stored in a cache. With `flip`, the cache also contains the
/// latents of the mirrored images, and half of all reads return those.
class LabeledLatents : public data::LatentSource {
 public:
  /// Hashes every image to determine its key in the cache. The dataset must outlive this object.
  LabeledLatents(const data::Dataset& images, const LabeledLatentsOptions& options);

  /// Returns the number of images, including mirrored ones, that the cache lacks.
  int64_t num_missing() const { return encoded_.num_missing(); }
  /// Encodes the images that the cache lacks and stores them (EncodedImages::make).
  void make(FunctionRef<std::vector<float>(const data::Image&)> encode,
            FunctionRef<void(int64_t count)> done) const;

  /// Returns the pixels that are encoded; number size() + i is image i mirrored.
  data::Image image(size_t number) const;

  int64_t size() const override { return images_.size(); }
  int64_t channels() const override { return options_.format.channels; }
  Extent extent(int64_t index) const override { return encoded_.extent(static_cast<size_t>(index)); }
  void read(int64_t index, uint64_t key, std::span<float> latents) const override;
  int32_t label(int64_t index) const override { return images_.label(index); }

 private:
  const data::Dataset& images_;
  LabeledLatentsOptions options_;
  EncodedImages encoded_;  ///< all images, followed by all mirrored images if `flip`
};

}  // namespace hearth::tasks
