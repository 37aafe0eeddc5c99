#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/captions/buckets.h"
#include "data/captions/captions.h"
#include "data/captions/latents.h"
#include "tasks/diffuse/encoded_images.h"

namespace hearth::tasks {

/// Hashes of the weights of the autoencoder (images) and of the text encoders (captions).
struct EncoderHashes {
  uint64_t images = 0;
  uint64_t captions = 0;
};

/// Callback that receives the embeddings of captions[number]: hidden states [num_tokens, text_width] and
/// pooled vector.
using TakeText =
    std::function<void(size_t number, std::span<const float> text, std::span<const float> pooled)>;

/// Returns the key under which a caption's embeddings are cached. `encoders`: hash of the text encoders.
io::CaptionKey caption_key(std::string_view caption, const LatentFormat& format, uint64_t encoders);

/// Latents and text embeddings of the images and captions of a folder, stored in a cache. An image that is
/// repeated N times per epoch has N consecutive indices. Cache files are read on access.
class CachedLatents : public data::LatentSource {
 public:
  /// Hashes every image file to determine its key in the cache. Throws a UserError if a file cannot be read.
  CachedLatents(std::vector<data::CaptionedImage> images, const data::Buckets& buckets,
                const LatentFormat& format, const EncoderHashes& hashes, io::LatentCache cache);

  /// Return the number of images, and of distinct captions including the empty one, that the cache lacks.
  int64_t num_missing_images() const { return encoded_.num_missing(); }
  int64_t num_missing_captions() const;
  /// Return all images, and the file names of those that are enlarged because they are small
  /// (Buckets::is_small).
  const std::vector<data::CaptionedImage>& images() const { return images_; }
  const std::vector<std::string>& small() const { return small_; }
  /// Encodes the images that the cache lacks and stores them (EncodedImages::make). `done` receives the
  /// number of finished images after each image.
  void encode_latents(FunctionRef<std::vector<float>(const data::Image&)> encode,
                      FunctionRef<void(int64_t count)> done) const;
  /// Encodes the captions that the cache lacks and stores them. Calls `encode` once with all these captions;
  /// `done` receives the number of finished captions after each caption.
  void encode_text(FunctionRef<void(std::span<const std::string> captions, const TakeText& take)> encode,
                   FunctionRef<void(int64_t count)> done) const;

  int64_t size() const override { return std::ssize(image_of_index_); }
  int64_t channels() const override { return format_.channels; }
  Extent extent(int64_t index) const override { return encoded_.extent(image_of(index)); }
  void read(int64_t index, uint64_t key, std::span<float> latents) const override;
  bool is_repeat(int64_t index) const override { return index > 0 && image_of(index) == image_of(index - 1); }
  void text(int64_t index, std::span<float> text, std::span<float> pooled) const override;
  /// Returns the pixels that are encoded for an index.
  data::Image image(int64_t index) const { return cropped(image_of(index)); }
  const std::string& caption(int64_t index) const { return images_[image_of(index)].caption; }

 private:
  size_t image_of(int64_t index) const { return image_of_index_.at(static_cast<size_t>(index)); }
  io::CaptionKey key_of(std::string_view caption) const {
    return caption_key(caption, format_, hash_of_captions_);
  }
  std::vector<std::string> missing_captions() const;
  /// Reads image `number` of images_.
  data::Image cropped(size_t number) const {
    return data::read_cropped(images_[number].file, crops_[number], images_[number].exif);
  }

  std::vector<data::CaptionedImage> images_;
  std::vector<data::BucketCrop> crops_;  ///< crop of each image
  std::vector<std::string> small_;
  std::vector<size_t> image_of_index_;  ///< for each index of the source, the index in images_ and crops_
  LatentFormat format_;
  uint64_t hash_of_captions_;
  io::LatentCache cache_;
  EncodedImages encoded_;
};

}  // namespace hearth::tasks
