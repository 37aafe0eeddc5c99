#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/extent.h"
#include "base/file.h"
#include "base/shape.h"

namespace hearth::io {

/// Key of the latents of an image: hash of the image file, hash of the autoencoder's weights, and size of the
/// resized image in pixels.
struct LatentKey {
  uint64_t content = 0;
  uint64_t model = 0;
  Extent pixels;
};

/// Key of the embeddings of a caption: hash of the text, hash of the text encoders' weights, number of tokens
/// and embedding width. `pooled`: length of the pooled vector; 0 if there is none.
struct CaptionKey {
  uint64_t content = 0;
  uint64_t model = 0;
  int64_t num_tokens = 0;
  int64_t width = 0;
  int64_t pooled = 0;
};

/// A folder of encoder outputs for images and captions, one safetensors file each. Files are written
/// atomically, so an interrupted run resumes with the existing ones. Thread-safe, also between processes.
/// Values are f32, or bf16 for caption embeddings that bf16 represents exactly.
class LatentCache {
 public:
  /// The folder is created by the first put().
  explicit LatentCache(fs::path folder) : folder_(std::move(folder)) {}

  /// True if the cache has a complete file for this key. Reads the header only, not the values.
  bool holds(const LatentKey& key, const Shape& shape) const;
  bool holds(const CaptionKey& key) const;
  /// Writes a file. Throws a UserError if the disk is full or the folder is not writable.
  void put(const LatentKey& key, const Shape& shape, std::span<const float> latents) const;
  void put(const CaptionKey& key, std::span<const float> text, std::span<const float> pooled) const;
  /// Reads a file. Throws a UserError if it is missing, was computed with other weights, or does not match
  /// its XXH3 hash.
  void read(const LatentKey& key, const Shape& shape, std::span<float> latents) const;
  void read(const CaptionKey& key, std::span<float> text, std::span<float> pooled) const;

  const fs::path& folder() const { return folder_; }
  /// Returns the path of the file of a key, whether it exists or not.
  fs::path path_of(const LatentKey& key) const;
  fs::path path_of(const CaptionKey& key) const;

 private:
  fs::path folder_;
};

}  // namespace hearth::io
