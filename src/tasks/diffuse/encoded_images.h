#pragma once

#include <vector>

#include "base/function_ref.h"
#include "io/latent_cache.h"

namespace hearth::tasks {

/// Inputs of a denoiser: latents of `channels`, one for `factor` x `factor` pixels, in patches of `patch` x
/// `patch`; text embeddings of num_tokens x text_width and a pooled vector (a width of 0: none).
struct LatentFormat {
  int64_t channels = 0;
  int64_t factor = 8;
  int64_t patch = 2;
  int64_t num_tokens = 0;
  int64_t text_width = 0;
  int64_t pooled_width = 0;
};

/// Latents of numbered images in a cache, as an autoencoder encoded them. Files are read on access.
class EncodedImages {
 public:
  EncodedImages(const LatentFormat& format, io::LatentCache cache)
      : format_(format), cache_(std::move(cache)) {}
  /// Appends an image. The sides of key.pixels must be multiples of factor * patch.
  void add(const io::LatentKey& key);

  int64_t size() const { return std::ssize(keys_); }
  /// Returns the size of an image's latents.
  Extent extent(size_t number) const;
  /// Reads latents [channels, height, width]. UserError if the cache lacks them.
  void read(size_t number, std::span<float> latents) const;
  /// Returns the number of images that the cache lacks.
  int64_t num_missing() const { return std::ssize(missing()); }
  /// Calls `encode` for each image that the cache lacks, in order, and stores its latents [channels, height,
  /// width] at once, so an interrupted call loses no finished work. `done` receives the count after each.
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
