#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "data/images/image.h"

namespace hearth::data {

/// A memory budget in bytes, shared by several caches. Thread-safe.
class ImageCacheBudget {
 public:
  explicit ImageCacheBudget(int64_t bytes) : bytes_(bytes) {}
  /// Reserves bytes; returns false, with no effect, if fewer are free.
  bool take(int64_t bytes);
  int64_t used() const { return used_; }

 private:
  const int64_t bytes_;
  std::atomic<int64_t> used_ = 0;
};

/// Cache of decoded images by index. Images stay cached; no more are added when the budget is
/// used up. Thread-safe.
class ImageCache {
 public:
  /// A null budget disables the cache.
  ImageCache(int64_t count, std::shared_ptr<ImageCacheBudget> budget);

  /// Returns a cached image; null if it is not cached.
  std::shared_ptr<const Image> find(int64_t number) const;
  /// Caches a copy of the image and returns it; null if the budget has no room.
  std::shared_ptr<const Image> keep(int64_t number, const Image& image);

  /// Returns the number of bytes that caching an image takes from the budget.
  static int64_t bytes_of(const Image& image);

 private:
  std::shared_ptr<ImageCacheBudget> budget_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const Image>> kept_;
};

}  // namespace hearth::data
