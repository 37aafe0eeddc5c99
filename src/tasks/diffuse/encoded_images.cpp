#include "tasks/diffuse/encoded_images.h"

#include "base/error.h"

namespace hearth::tasks {

void EncodedImages::add(const io::LatentKey& key) {
  const int64_t multiple = format_.factor * format_.patch;
  HEARTH_CHECK(key.pixels.height % multiple == 0 && key.pixels.width % multiple == 0);
  keys_.push_back(key);
}

Extent EncodedImages::extent(size_t number) const {
  const Extent pixels = keys_.at(number).pixels;
  return {pixels.height / format_.factor, pixels.width / format_.factor};
}

Shape EncodedImages::shape(size_t number) const {
  const Extent size = extent(number);
  return {format_.channels, size.height, size.width};
}

std::vector<size_t> EncodedImages::missing() const {
  std::vector<size_t> missing;
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (!cache_.holds(keys_[i], shape(i))) missing.push_back(i);
  }
  return missing;
}

void EncodedImages::make(FunctionRef<std::vector<float>(size_t number)> encode,
                         FunctionRef<void(int64_t count)> done) const {
  int64_t count = 0;
  for (const size_t i : missing()) {
    cache_.put(keys_[i], shape(i), encode(i));
    done(++count);
  }
}

void EncodedImages::read(size_t number, std::span<float> latents) const {
  cache_.read(keys_.at(number), shape(number), latents);
}

}  // namespace hearth::tasks
