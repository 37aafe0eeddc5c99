#include "tasks/diffuse/labeled_latents.h"

#include "base/hash.h"
#include "data/images/warp.h"

namespace hearth::tasks {
namespace {

/// Seed of the hash of images in cache keys. It differs from that of captioned images, because these are
/// cropped instead of resized.
constexpr uint64_t kResized = 0x6C6162656C6564;

}  // namespace

LabeledLatents::LabeledLatents(const data::Dataset& images, const LabeledLatentsOptions& options)
    : images_(images), options_(options), encoded_(options.format, io::LatentCache(options.cache)) {
  std::vector<uint64_t> contents;
  for (int64_t i = 0; i < images_.size(); ++i) contents.push_back(images_.content(i));
  for (const bool mirrored : {false, true}) {
    if (mirrored && !options_.flip) continue;
    for (const uint64_t content : contents) {
      const uint64_t parts[] = {content, static_cast<uint64_t>(images_.channels()), mirrored ? 1U : 0U};
      encoded_.add({.content = hash64(std::as_bytes(std::span(parts)), kResized),
                    .model = options_.coder,
                    .pixels = options_.pixels});
    }
  }
}

data::Image LabeledLatents::image(size_t number) const {
  const auto count = static_cast<size_t>(images_.size());
  data::Image image = data::read_image(images_, static_cast<int64_t>(number % count));
  if (image.size() != options_.pixels) image = data::resize(image, options_.pixels);
  if (number >= count) data::mirror(image);
  return image;
}

void LabeledLatents::make(FunctionRef<std::vector<float>(const data::Image&)> encode,
                          FunctionRef<void(int64_t count)> done) const {
  encoded_.make([&](size_t number) { return encode(image(number)); }, done);
}

void LabeledLatents::read(int64_t index, uint64_t key, std::span<float> latents) const {
  const bool mirrors = options_.flip && data::is_mirrored(key, index);
  encoded_.read(static_cast<size_t>(mirrors ? size() + index : index), latents);
}

}  // namespace hearth::tasks
