#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/captions/buckets.h"
#include "data/captions/captions.h"
#include "data/captions/latents.h"
#include "tasks/diffuse/encoded_images.h"

namespace hearth::tasks {

/// Hashes of the weights of the autoencoder and of the text encoders.
struct EncoderHashes {
  uint64_t images = 0;
  uint64_t captions = 0;
};

/// Receives the embeddings of captions[number]: hidden states and the pooled vector.
using TakeText =
    std::function<void(size_t number, std::span<const float> text, std::span<const float> pooled)>;

/// Returns the key of a caption's embeddings in a cache. `encoders`: hash of the text encoders.
io::CaptionKey caption_key(std::string_view caption, const LatentFormat& format, uint64_t encoders);

/// Images of a folder with their captions, as latents and text embeddings in a cache. An image that is
/// repeated N times per epoch has N indices. Files are read on access.
class CachedLatents : public data::LatentSource {
 public:
  /// Hashes every image file to find its latents in the cache. UserError if one cannot be read.
  CachedLatents(std::vector<data::CaptionedImage> images, const data::Buckets& buckets,
                const LatentFormat& format, const EncoderHashes& hashes, io::LatentCache cache);

  /// Number of images that the cache lacks; of distinct captions, with the empty one.
  int64_t num_missing_images() const { return encoded_.num_missing(); }
  int64_t num_missing_captions() const;
  /// All images; file names of those that are enlarged (Buckets::is_small).
  const std::vector<data::CaptionedImage>& images() const { return images_; }
  const std::vector<std::string>& small() const { return small_; }
  /// Encodes the missing images into the cache (EncodedImages::make).
  void encode_latents(FunctionRef<std::vector<float>(const data::Image&)> encode,
                      FunctionRef<void(int64_t count)> done) const;
  /// Encodes the missing captions into the cache. Calls `encode` once, with all of them; `done` receives the
  /// count after each.
  void encode_text(FunctionRef<void(std::span<const std::string> captions, const TakeText& take)> encode,
                   FunctionRef<void(int64_t count)> done) const;

  int64_t size() const override { return std::ssize(image_of_index_); }
  int64_t channels() const override { return format_.channels; }
  Extent extent(int64_t index) const override { return encoded_.extent(image_of(index)); }
  void read(int64_t index, uint64_t key, std::span<float> latents) const override;
  bool is_repeat(int64_t index) const override { return index > 0 && image_of(index) == image_of(index - 1); }
  void text(int64_t index, std::span<float> text, std::span<float> pooled) const override;
  const std::string& caption(int64_t index) const { return images_[image_of(index)].caption; }

 private:
  size_t image_of(int64_t index) const { return image_of_index_.at(static_cast<size_t>(index)); }
  io::CaptionKey key_of(std::string_view caption) const {
    return caption_key(caption, format_, hash_of_captions_);
  }
  std::vector<std::string> missing_captions() const;

  std::vector<data::CaptionedImage> images_;
  std::vector<data::BucketCrop> crops_;  ///< by image
  std::vector<std::string> small_;
  std::vector<size_t> image_of_index_;  ///< by index: position in images_ and crops_
  LatentFormat format_;
  uint64_t hash_of_captions_;
  io::LatentCache cache_;
  EncodedImages encoded_;
};

}  // namespace hearth::tasks
