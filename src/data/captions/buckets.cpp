#include "data/captions/buckets.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "data/images/warp.h"

namespace hearth::data {
namespace {

/// Returns the larger aspect ratio of two sizes divided by the smaller one, at least 1.
double difference(Extent a, Extent b) {
  const auto one = static_cast<double>(a.width * b.height), other = static_cast<double>(b.width * a.height);
  return std::max(one, other) / std::min(one, other);
}

/// Returns the image size scaled to just cover the bucket; the aspect ratio is kept up to rounding.
Extent covering(Extent image, Extent bucket) {
  const auto scaled = [](int64_t side, int64_t to, int64_t from) { return (side * to + from / 2) / from; };
  if (bucket.width * image.height >= bucket.height * image.width)
    return {std::max(bucket.height, scaled(image.height, bucket.width, image.width)), bucket.width};
  return {bucket.height, std::max(bucket.width, scaled(image.width, bucket.height, image.height))};
}

}  // namespace

Buckets::Buckets(int64_t resolution, int64_t step) : min_side_(resolution / 2) {
  HEARTH_CHECK(step > 0);
  if (resolution < step || resolution % step != 0 || resolution > kMaxImageSide / 2)
    user_error("expected data.image_size as a multiple of {} of at most {}, got {}; try data.image_size={}",
               step, kMaxImageSide / 2, resolution,
               std::clamp((resolution + step / 2) / step * step, step, kMaxImageSide / 2 / step * step));
  const int64_t min_side = std::max(step, min_side_ / step * step);
  const auto longest = [&](int64_t side) {
    return std::min(2 * resolution, resolution * resolution / side / step * step);
  };
  for (int64_t height = min_side; height <= 2 * resolution; height += step) {
    const int64_t width = longest(height);
    if (width >= min_side && longest(width) == height) sizes_.push_back({height, width});
  }
}

BucketCrop Buckets::crop(Extent image) const {
  const Extent bucket =
      *std::ranges::min_element(sizes_, {}, [&](Extent size) { return difference(image, size); });
  const Extent resized = covering(image, bucket);
  return {.bucket = bucket,
          .resized = resized,
          .top = (resized.height - bucket.height) / 2,
          .left = (resized.width - bucket.width) / 2};
}

Image read_cropped(const fs::path& file, const BucketCrop& crop, Exif exif) {
  const MappedFile mapped(file);
  thread_local ImageBuffers buffers;
  const Image& whole = read_image(mapped.bytes(), 3, crop.resized, file.string(), buffers, exif);
  if (crop.resized == crop.bucket) return whole;
  Image cropped = gray_image(crop.bucket.height, crop.bucket.width);
  paste(whole, crop.top, crop.left, crop.bucket.height, crop.bucket.width, cropped, 0, 0);
  return cropped;
}

}  // namespace hearth::data
