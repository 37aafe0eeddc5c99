#include "data/image_rows.h"

#include "data/images/augment.h"

namespace hearth::data {

ImageRows::ImageRows(const Dataset& dataset, PixelOptions options)
    : dataset_(dataset), options_(std::move(options)) {
  check_pixels(options_, dataset.image_size(), dataset.channels());
}

ArrayFormats ImageRows::formats(int64_t) const {
  const int64_t values = dataset_.image_size().num_pixels() * dataset_.channels();
  return {{{"images", values * static_cast<int64_t>(sizeof(float))}, {"labels", sizeof(int32_t)}}};
}

void ImageRows::make(const Row& row, const std::array<std::byte*, kMaxArrays>& arrays) const {
  auto* image = reinterpret_cast<float*>(arrays[0]);
  auto* label = reinterpret_cast<int32_t*>(arrays[1]);
  if (dataset_.holds_floats()) return dataset_.read_floats(row.index, image, label);
  auto* pixels = reinterpret_cast<uint8_t*>(row.scratch);
  dataset_.read(row.index, pixels, label);
  const Augmenter augmenter{options_, dataset_.image_size(), dataset_.channels()};
  augmenter.apply(row.key, row.index, pixels, image);
}

}  // namespace hearth::data
