#include "tasks/diffuse/cached_latents.h"

#include <set>

#include "base/file.h"
#include "base/hash.h"

namespace hearth::tasks {

io::CaptionKey caption_key(std::string_view caption, const LatentFormat& format, uint64_t encoders) {
  return {.content = hash64(caption),
          .model = encoders,
          .num_tokens = format.num_tokens,
          .width = format.text_width,
          .pooled = format.pooled_width};
}

CachedLatents::CachedLatents(std::vector<data::CaptionedImage> images, const data::Buckets& buckets,
                             const LatentFormat& format, const EncoderHashes& hashes, io::LatentCache cache)
    : images_(std::move(images)),
      format_(format),
      hash_of_captions_(hashes.captions),
      cache_(std::move(cache)),
      encoded_(format_, cache_) {
  for (size_t i = 0; i < images_.size(); ++i) {
    const data::CaptionedImage& image = images_[i];
    crops_.push_back(buckets.crop(image.size));
    if (buckets.is_small(image.size)) small_.push_back(image.file.filename().string());
    const MappedFile file(image.file);
    // An image whose EXIF orientation is ignored gets another key, because it has other latents.
    const uint64_t content = hash64(file.bytes()) + (image.exif == Exif::ignore ? 1 : 0);
    encoded_.add({.content = content, .model = hashes.images, .pixels = crops_.back().bucket});
    image_of_index_.insert(image_of_index_.end(), static_cast<size_t>(image.repeats), i);
  }
}

std::vector<std::string> CachedLatents::missing_captions() const {
  if (format_.num_tokens == 0) return {};
  std::set<std::string> captions = {""};
  for (const data::CaptionedImage& image : images_) captions.insert(image.caption);
  std::erase_if(captions, [&](const std::string& caption) { return cache_.holds(key_of(caption)); });
  return {captions.begin(), captions.end()};
}

int64_t CachedLatents::num_missing_captions() const { return std::ssize(missing_captions()); }

void CachedLatents::encode_latents(FunctionRef<std::vector<float>(const data::Image&)> encode,
                                   FunctionRef<void(int64_t count)> done) const {
  encoded_.make([&](size_t i) { return encode(cropped(i)); }, done);
}

void CachedLatents::encode_text(
    FunctionRef<void(std::span<const std::string> captions, const TakeText& take)> encode,
    FunctionRef<void(int64_t count)> done) const {
  const std::vector<std::string> missing = missing_captions();
  if (missing.empty()) return;
  int64_t count = 0;
  encode(missing, [&](size_t number, std::span<const float> text, std::span<const float> pooled) {
    cache_.put(key_of(missing.at(number)), text, pooled);
    done(++count);
  });
}

void CachedLatents::read(int64_t index, uint64_t /*key*/, std::span<float> latents) const {
  encoded_.read(image_of(index), latents);
}

void CachedLatents::text(int64_t index, std::span<float> text, std::span<float> pooled) const {
  if (format_.num_tokens == 0) return;
  cache_.read(key_of(index < 0 ? std::string_view() : caption(index)), text, pooled);
}

}  // namespace hearth::tasks
