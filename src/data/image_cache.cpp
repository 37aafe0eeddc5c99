#include "data/image_cache.h"

namespace hearth::data {

bool ImageCacheBudget::take(int64_t bytes) {
  for (int64_t used = used_; bytes <= bytes_ - used;)
    if (used_.compare_exchange_weak(used, used + bytes)) return true;
  return false;
}

ImageCache::ImageCache(int64_t count, std::shared_ptr<ImageCacheBudget> budget)
    : budget_(std::move(budget)), kept_(budget_ == nullptr ? 0 : static_cast<size_t>(count)) {}

std::shared_ptr<const Image> ImageCache::find(int64_t number) const {
  if (budget_ == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  return kept_.at(static_cast<size_t>(number));
}

std::shared_ptr<const Image> ImageCache::keep(int64_t number, const Image& image) {
  if (budget_ == nullptr) return nullptr;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Image>& place = kept_.at(static_cast<size_t>(number));
  if (place == nullptr && budget_->take(bytes_of(image))) place = std::make_shared<const Image>(image);
  return place;
}

int64_t ImageCache::bytes_of(const Image& image) {
  return static_cast<int64_t>(sizeof(Image)) + std::ssize(image.pixels);
}

}  // namespace hearth::data
