#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "data/buckets.h"
#include "data/captions.h"
#include "data/latents.h"
#include "io/latent_cache.h"

namespace hearth::tasks {

/// What a denoiser takes: latents of `channels`, one for `factor` x `factor` pixels, in patches of `patch` x
/// `patch`; and text of num_tokens x text_width with a pooled vector (each may be 0: there is none).
struct LatentFormat {
  int64_t channels = 0;
  int64_t factor = 8;
  int64_t patch = 2;
  int64_t num_tokens = 0;
  int64_t text_width = 0;
  int64_t pooled_width = 0;
};

/// Hashes of the weights of both encoders.
struct CoderHashes {
  uint64_t pictures = 0;
  uint64_t captions = 0;
};

/// Takes the embeddings of captions[number].
using TakeText =
    std::function<void(size_t number, std::span<const float> text, std::span<const float> pooled)>;

/// Pictures of a folder and their captions as encoders have made latents and embeddings of them, in a cache;
/// a picture that comes several times an epoch has as many indices. Files are read when they are asked for.
class CachedLatents : public data::LatentSource {
 public:
  /// Hashes every picture. UserError where one is too small for its bucket, or cannot be read.
  CachedLatents(std::vector<data::CaptionedPicture> pictures, const data::Buckets& buckets,
                const LatentFormat& format, const CoderHashes& hashes, io::LatentCache cache);

  /// Pictures, and distinct captions with the empty one, that the cache lacks.
  int64_t num_missing_pictures() const;
  int64_t num_missing_captions() const;
  /// Has the encoder make latents [channels, height, width] of the pictures that the cache lacks, in their
  /// order, and keeps each at once: whatever stops it, what was made stays. `done` hears how many there are.
  void make_latents(FunctionRef<std::vector<float>(const data::Image&)> encode,
                    FunctionRef<void(int64_t count)> done) const;
  /// The same of captions, with `encode` called once.
  void make_text(FunctionRef<void(std::span<const std::string> captions, const TakeText& take)> encode,
                 FunctionRef<void(int64_t count)> done) const;

  int64_t size() const override { return std::ssize(places_); }
  int64_t channels() const override { return format_.channels; }
  Extent extent(int64_t index) const override;
  void read(int64_t index, uint64_t key, std::span<float> latents) const override;
  bool is_repeat(int64_t index) const override { return index > 0 && place(index) == place(index - 1); }
  void text(int64_t index, std::span<float> text, std::span<float> pooled) const override;
  const std::string& caption(int64_t index) const { return picture(index).caption; }

 private:
  struct Coded {
    io::LatentKey key;
    data::BucketCrop crop;
  };
  size_t place(int64_t index) const { return places_.at(static_cast<size_t>(index)); }
  const data::CaptionedPicture& picture(int64_t index) const { return pictures_[place(index)]; }
  Extent latents_of(const Coded& coded) const;
  Shape shape_of(const Coded& coded) const;
  io::CaptionKey key_of(std::string_view caption) const;
  std::vector<size_t> missing_pictures() const;
  std::vector<std::string> missing_captions() const;

  std::vector<data::CaptionedPicture> pictures_;
  std::vector<Coded> coded_;    ///< of each picture
  std::vector<size_t> places_;  ///< in both, of each index
  LatentFormat format_;
  CoderHashes hashes_;
  io::LatentCache cache_;
};

}  // namespace hearth::tasks
