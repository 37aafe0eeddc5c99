#include "data/image_reader.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"

namespace hearth::data {

Extent fit(Extent original, Extent frame) {
  // Uses integer arithmetic, so that one side equals the side of the frame exactly.
  if (original.height * frame.width >= original.width * frame.height)
    return {frame.height, std::max<int64_t>(1, original.width * frame.height / original.height)};
  return {std::max<int64_t>(1, original.height * frame.width / original.width), frame.width};
}

Extent shrunk_to_fit(Extent original, Extent frame) {
  const bool shrinks = original.height > frame.height || original.width > frame.width;
  return shrinks ? fit(original, frame) : original;
}

ImageReader::ImageReader(const BoxedImages& set, int64_t height, int64_t width,
                         std::shared_ptr<ImageCacheBudget> budget)
    : set_(set), height_(height), width_(width), cache_(std::ssize(set.images), std::move(budget)) {
  HEARTH_CHECK(height > 0 && width > 0);
}

std::shared_ptr<const Image> ImageReader::read(int64_t index) const {
  if (auto kept = cache_.find(index)) return kept;
  const Image drawn = set_.draw ? set_.draw(index) : Image();
  const Image& image = set_.draw ? drawn : read_file(index);
  if (auto kept = cache_.keep(index, image)) return kept;
  return std::make_shared<const Image>(image);
}

const Image& ImageReader::read_file(int64_t index) const {
  const BoxedImage& original = set_.images.at(static_cast<size_t>(index));
  const std::string name = original.file.string();
  const MappedFile file(original.file);
  const ImageHeader header = read_image_header(file.bytes(), name);
  const Exif exif = exif_of(original, header, set_.exif);
  const Extent size = shrunk_to_fit(header.size(exif), {height_, width_});
  thread_local ImageBuffers buffers;
  return read_image(file.bytes(), 3, size, name, buffers, exif);
}

}  // namespace hearth::data
