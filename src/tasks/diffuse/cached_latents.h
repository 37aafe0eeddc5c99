#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/captions/buckets.h"
#include "data/captions/captions.h"
#include "data/captions/latents.h"
#include "tasks/diffuse/coded_pictures.h"

namespace hearth::tasks {

/// Hashes of the weights of both encoders.
struct CoderHashes {
  uint64_t pictures = 0;
  uint64_t captions = 0;
};

/// Takes the embeddings of captions[number].
using TakeText =
    std::function<void(size_t number, std::span<const float> text, std::span<const float> pooled)>;

/// Where the embeddings of a caption are in a cache.
io::CaptionKey caption_key(std::string_view caption, const LatentFormat& format, uint64_t encoders);

/// Pictures of a folder and their captions as encoders have made latents and embeddings of them, in a cache;
/// a picture that comes several times an epoch has as many indices. Files are read when they are asked for.
class CachedLatents : public data::LatentSource {
 public:
  /// Hashes every image. UserError if one cannot be read.
  CachedLatents(std::vector<data::CaptionedPicture> pictures, const data::Buckets& buckets,
                const LatentFormat& format, const CoderHashes& hashes, io::LatentCache cache);

  /// Pictures, and distinct captions with the empty one, that the cache lacks.
  int64_t num_missing_pictures() const { return coded_.num_missing(); }
  int64_t num_missing_captions() const;
  /// Images, and file names of the enlarged ones (Buckets::is_small).
  const std::vector<data::CaptionedPicture>& pictures() const { return pictures_; }
  const std::vector<std::string>& small() const { return small_; }
  /// CodedPictures::make.
  void make_latents(FunctionRef<std::vector<float>(const data::Image&)> encode,
                    FunctionRef<void(int64_t count)> done) const;
  /// The same of captions, with `encode` called once.
  void make_text(FunctionRef<void(std::span<const std::string> captions, const TakeText& take)> encode,
                 FunctionRef<void(int64_t count)> done) const;

  int64_t size() const override { return std::ssize(places_); }
  int64_t channels() const override { return format_.channels; }
  Extent extent(int64_t index) const override { return coded_.extent(place(index)); }
  void read(int64_t index, uint64_t key, std::span<float> latents) const override;
  bool is_repeat(int64_t index) const override { return index > 0 && place(index) == place(index - 1); }
  void text(int64_t index, std::span<float> text, std::span<float> pooled) const override;
  const std::string& caption(int64_t index) const { return pictures_[place(index)].caption; }

 private:
  size_t place(int64_t index) const { return places_.at(static_cast<size_t>(index)); }
  io::CaptionKey key_of(std::string_view caption) const {
    return caption_key(caption, format_, hash_of_captions_);
  }
  std::vector<std::string> missing_captions() const;

  std::vector<data::CaptionedPicture> pictures_;
  std::vector<data::BucketCrop> crops_;  ///< of each picture
  std::vector<std::string> small_;
  std::vector<size_t> places_;  ///< for each index: position in pictures_ and crops_
  LatentFormat format_;
  uint64_t hash_of_captions_;
  io::LatentCache cache_;
  CodedPictures coded_;
};

}  // namespace hearth::tasks
