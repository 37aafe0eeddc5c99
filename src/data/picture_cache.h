#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "data/images/image.h"

namespace hearth::data {

/// Bytes that several caches share. Safe to use from several threads.
class PictureBudget {
 public:
  explicit PictureBudget(int64_t bytes) : bytes_(bytes) {}
  /// False, and nothing is taken, where that would be more than there is.
  bool take(int64_t bytes);
  int64_t used() const { return used_; }

 private:
  const int64_t bytes_;
  std::atomic<int64_t> used_ = 0;
};

/// Decoded pictures by number, kept for good while their budget has room. Safe to use from several threads.
class PictureCache {
 public:
  /// A null budget: nothing is kept.
  PictureCache(int64_t count, std::shared_ptr<PictureBudget> budget);

  /// Null where it is not kept.
  std::shared_ptr<const Image> find(int64_t number) const;
  /// A copy of the picture that find returns from now on; null where there is no room for it.
  std::shared_ptr<const Image> keep(int64_t number, const Image& image);

  /// What keeping a picture takes from the budget.
  static int64_t bytes_of(const Image& image);

 private:
  std::shared_ptr<PictureBudget> budget_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const Image>> kept_;
};

}  // namespace hearth::data
