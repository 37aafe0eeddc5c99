#pragma once

#include "data/captions/latents.h"
#include "tasks/diffuse/coded_pictures.h"

namespace hearth::tasks {

struct LabeledLatentsOptions {
  Extent pixels;  ///< what images are resized to; sides are multiples of factor * patch
  bool flip = false;
  LatentFormat format;
  uint64_t coder = 0;  ///< hash of the autoencoder
  fs::path cache;      ///< folder
};

/// Images of a dataset as an autoencoder has made latents of them, in a cache, with their labels. With `flip`
/// it has made some of the mirrored images too, which half of what is read is of.
class LabeledLatents : public data::LatentSource {
 public:
  /// Hashes every image. The dataset outlives it.
  LabeledLatents(const data::Dataset& images, const LabeledLatentsOptions& options);

  /// Images, and mirrored ones, that the cache lacks.
  int64_t num_missing() const { return coded_.num_missing(); }
  /// CodedPictures::make.
  void make(FunctionRef<std::vector<float>(const data::Image&)> encode,
            FunctionRef<void(int64_t count)> done) const;

  int64_t size() const override { return images_.size(); }
  int64_t channels() const override { return options_.format.channels; }
  Extent extent(int64_t index) const override { return coded_.extent(static_cast<size_t>(index)); }
  void read(int64_t index, uint64_t key, std::span<float> latents) const override;
  int32_t label(int64_t index) const override { return images_.label(index); }

 private:
  data::Image image(size_t number) const;

  const data::Dataset& images_;
  LabeledLatentsOptions options_;
  CodedPictures coded_;  ///< all images, then all of them mirrored
};

}  // namespace hearth::tasks
