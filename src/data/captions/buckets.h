#pragma once

#include <cstdint>
#include <vector>

#include "base/extent.h"
#include "data/images/image.h"

namespace hearth::data {

/// Conversion of an upright image to a bucket's size: resize to `resized`, then crop a rectangle of the
/// bucket's size at (top, left).
struct BucketCrop {
  Extent bucket, resized;
  int64_t top = 0, left = 0;
  bool operator==(const BucketCrop&) const = default;
};

/// Aspect ratio buckets (as in NovelAI's and kohya's trainers): sizes to which images are resized and
/// cropped, so that images of equal size form batches and little is cut off. Sides are multiples of
/// `step` between half and twice the resolution; the area is at most resolution x resolution, and each
/// side is the longest possible.
class Buckets {
 public:
  /// Throws a UserError unless the resolution is a positive multiple of the step, within the maximum image
  /// size.
  explicit Buckets(int64_t resolution, int64_t step = 64);

  /// Bucket sizes, from the widest to the tallest.
  const std::vector<Extent>& sizes() const { return sizes_; }
  /// Returns the crop into the bucket with the nearest aspect ratio: resized to just cover the bucket,
  /// cropped at the center.
  BucketCrop crop(Extent image) const;
  /// True if the image's shorter side is below half of the resolution: it is enlarged more than twofold then.
  bool is_small(Extent image) const { return image.shorter() < min_side_; }

 private:
  int64_t min_side_;
  std::vector<Extent> sizes_;
};

/// Reads an image file as RGB of the bucket's size. `crop` comes from Buckets::crop for the image's size
/// after applying `exif`. Throws a UserError if the file cannot be read.
Image read_cropped(const fs::path& file, const BucketCrop& crop, Exif exif = Exif::apply);

}  // namespace hearth::data
