#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/extent.h"
#include "base/file.h"
#include "base/shape.h"

namespace hearth::io {

/// A picture's latents in a cache: by the hash of its file, that of the weights of the autoencoder, and the
/// size in pixels that it was brought to.
struct LatentKey {
  uint64_t content = 0;
  uint64_t model = 0;
  Extent pixels;
};

/// A caption's embeddings: by the hash of its text, that of the weights of the text encoders, and how many
/// tokens of which width they are; `pooled` is the length of the pooled vector, 0 where there is none.
struct CaptionKey {
  uint64_t content = 0;
  uint64_t model = 0;
  int64_t num_tokens = 0;
  int64_t width = 0;
  int64_t pooled = 0;
};

/// What encoders have made of pictures and captions, in a folder: a safetensors file for each, which appears
/// whole or not at all, so that an interrupted run resumes with what is there. Any number of threads
/// and processes read and write at once. Values are f32; of captions bf16 where that loses nothing.
class LatentCache {
 public:
  /// The folder is made when something is put into it.
  explicit LatentCache(fs::path folder) : folder_(std::move(folder)) {}

  /// Whether there is a file of that key, as long as its header says; its numbers are not read.
  bool holds(const LatentKey& key, const Shape& shape) const;
  bool holds(const CaptionKey& key) const;
  /// UserError where the disk is full, or the folder cannot be written to.
  void put(const LatentKey& key, const Shape& shape, std::span<const float> latents) const;
  void put(const CaptionKey& key, std::span<const float> text, std::span<const float> pooled) const;
  /// UserError where there is none, where it is by other weights, and where what it holds is not what was put
  /// (by its XXH3).
  void read(const LatentKey& key, const Shape& shape, std::span<float> latents) const;
  void read(const CaptionKey& key, std::span<float> text, std::span<float> pooled) const;

  const fs::path& folder() const { return folder_; }
  fs::path path_of(const LatentKey& key) const;
  fs::path path_of(const CaptionKey& key) const;

 private:
  fs::path folder_;
};

}  // namespace hearth::io
