#pragma once

#include <vector>

#include "base/function_ref.h"
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

/// Pictures by number as an autoencoder has made latents of them, in a cache; each file is read when it is
/// asked for.
class CodedPictures {
 public:
  CodedPictures(const LatentFormat& format, io::LatentCache cache)
      : format_(format), cache_(std::move(cache)) {}
  /// One more. Sides of key.pixels are multiples of factor * patch.
  void add(const io::LatentKey& key);

  int64_t size() const { return std::ssize(keys_); }
  /// Of its latents.
  Extent extent(size_t number) const;
  void read(size_t number, std::span<float> latents) const;
  /// How many the cache lacks.
  int64_t num_missing() const { return std::ssize(missing()); }
  /// Has latents [channels, height, width] made of those that the cache lacks, in their order, and keeps each
  /// at once: whatever stops it, what was made stays. `done` hears how many there are.
  void make(FunctionRef<std::vector<float>(size_t number)> encode,
            FunctionRef<void(int64_t count)> done) const;

 private:
  Shape shape(size_t number) const;
  std::vector<size_t> missing() const;

  LatentFormat format_;
  io::LatentCache cache_;
  std::vector<io::LatentKey> keys_;
};

}  // namespace hearth::tasks
