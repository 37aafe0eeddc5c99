#include "tasks/diffuse/cached_latents.h"

#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace hearth::tasks {

CachedLatents::CachedLatents(std::vector<data::CaptionedPicture> pictures, const data::Buckets& buckets,
                             const LatentFormat& format, const CoderHashes& hashes, io::LatentCache cache)
    : pictures_(std::move(pictures)), format_(format), hashes_(hashes), cache_(std::move(cache)) {
  for (size_t i = 0; i < pictures_.size(); ++i) {
    const data::CaptionedPicture& picture = pictures_[i];
    const data::BucketCrop crop = buckets.crop(picture.size, picture.file.string());
    const int64_t multiple = format_.factor * format_.patch;
    HEARTH_CHECK(crop.bucket.height % multiple == 0 && crop.bucket.width % multiple == 0);
    const MappedFile file(picture.file);
    coded_.push_back(
        {{.content = hash64(file.bytes()), .model = hashes_.pictures, .pixels = crop.bucket}, crop});
    places_.insert(places_.end(), static_cast<size_t>(picture.repeats), i);
  }
}

Extent CachedLatents::latents_of(const Coded& coded) const {
  return {coded.key.pixels.height / format_.factor, coded.key.pixels.width / format_.factor};
}

Shape CachedLatents::shape_of(const Coded& coded) const {
  const Extent size = latents_of(coded);
  return {format_.channels, size.height, size.width};
}

io::CaptionKey CachedLatents::key_of(std::string_view caption) const {
  return {.content = hash64(caption),
          .model = hashes_.captions,
          .num_tokens = format_.num_tokens,
          .width = format_.text_width,
          .pooled = format_.pooled_width};
}

std::vector<size_t> CachedLatents::missing_pictures() const {
  std::vector<size_t> missing;
  for (size_t i = 0; i < coded_.size(); ++i) {
    if (!cache_.holds(coded_[i].key, shape_of(coded_[i]))) missing.push_back(i);
  }
  return missing;
}

std::vector<std::string> CachedLatents::missing_captions() const {
  if (format_.num_tokens == 0) return {};
  std::set<std::string> captions = {""};
  for (const data::CaptionedPicture& picture : pictures_) captions.insert(picture.caption);
  std::erase_if(captions, [&](const std::string& caption) { return cache_.holds(key_of(caption)); });
  return {captions.begin(), captions.end()};
}

int64_t CachedLatents::num_missing_pictures() const { return std::ssize(missing_pictures()); }
int64_t CachedLatents::num_missing_captions() const { return std::ssize(missing_captions()); }

void CachedLatents::make_latents(FunctionRef<std::vector<float>(const data::Image&)> encode,
                                 FunctionRef<void(int64_t count)> done) const {
  int64_t count = 0;
  for (const size_t i : missing_pictures()) {
    const Coded& coded = coded_[i];
    cache_.put(coded.key, shape_of(coded), encode(data::read_cropped(pictures_[i].file, coded.crop)));
    done(++count);
  }
}

void CachedLatents::make_text(
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

Extent CachedLatents::extent(int64_t index) const { return latents_of(coded_[place(index)]); }

void CachedLatents::read(int64_t index, uint64_t /*key*/, std::span<float> latents) const {
  const Coded& coded = coded_[place(index)];
  cache_.read(coded.key, shape_of(coded), latents);
}

void CachedLatents::text(int64_t index, std::span<float> text, std::span<float> pooled) const {
  if (format_.num_tokens == 0) return;
  cache_.read(key_of(index < 0 ? std::string_view() : caption(index)), text, pooled);
}

}  // namespace hearth::tasks
