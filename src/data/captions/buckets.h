#pragma once

#include <cstdint>
#include <vector>

#include "base/extent.h"
#include "data/images/image.h"

namespace hearth::data {

/// How an upright picture becomes one of `bucket`'s size: it is resized to `resized`, of which the rectangle
/// at (top, left) is kept.
struct BucketCrop {
  Extent bucket, resized;
  int64_t top = 0, left = 0;
  bool operator==(const BucketCrop&) const = default;
};

/// The sizes that pictures of all shapes are brought to, so that some of them make a batch and little is cut
/// off: sides are multiples of `step` from half of the resolution to twice as much, the area is at most
/// resolution x resolution, and neither side could be longer.
class Buckets {
 public:
  /// UserError unless the resolution is a multiple of the step, and at least that.
  explicit Buckets(int64_t resolution, int64_t step = 64);

  /// From the widest to the highest.
  const std::vector<Extent>& sizes() const { return sizes_; }
  /// Into the bucket nearest in aspect: resized, as much as its aspect allows, until it just covers that, and
  /// cropped at the center.
  BucketCrop crop(Extent picture) const;
  /// True if the shorter side is below half of the resolution, so that the image is enlarged more than
  /// twofold.
  bool is_small(Extent picture) const { return picture.shorter() < min_side_; }

 private:
  int64_t min_side_;
  std::vector<Extent> sizes_;
};

/// Reads an image file as RGB of the bucket's size. `crop` comes from Buckets::crop for the image's size
/// after applying `exif`. UserError if the file cannot be read.
Image read_cropped(const fs::path& file, const BucketCrop& crop, Exif exif = Exif::apply);

}  // namespace hearth::data
