#pragma once

#include <vector>

#include "base/function_ref.h"
#include "io/latent_cache.h"

namespace hearth::tasks {

/// Format of the encoded inputs of a denoiser. Latents have `channels` channels; each latent represents
/// factor x factor pixels; patch x patch latents form a token. Text embeddings are [num_tokens, text_width],
/// the pooled vector is [pooled_width] (a width of 0: none).
struct LatentFormat {
  int64_t channels = 0;
  int64_t factor = 8;
  int64_t patch = 2;
  int64_t num_tokens = 0;
  int64_t text_width = 0;
  int64_t pooled_width = 0;
};

/// Latents of a list of images, stored in a cache. Cache files are read on access.
class EncodedImages {
 public:
  EncodedImages(const LatentFormat& format, io::LatentCache cache)
      : format_(format), cache_(std::move(cache)) {}
  /// Appends an image. The sides of key.pixels must be multiples of factor * patch.
  void add(const io::LatentKey& key);

  int64_t size() const { return std::ssize(keys_); }
  /// Returns the size of an image's latents.
  Extent extent(size_t number) const;
  /// Reads latents [channels, height, width]. Throws a UserError if the cache lacks them.
  void read(size_t number, std::span<float> latents) const;
  /// Returns the number of images that the cache lacks.
  int64_t num_missing() const { return std::ssize(missing()); }
  /// Calls `encode` for each image that the cache lacks, in order, and stores the returned latents [channels,
  /// height, width] immediately, so that an interruption loses no finished work. `done` receives the number
  /// of finished images after each image.
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
