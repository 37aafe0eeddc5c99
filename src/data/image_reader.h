#pragma once

#include <cstdint>
#include <memory>

#include "data/boxes/box.h"
#include "data/image_cache.h"
#include "data/images/image.h"

namespace hearth::data {

/// Returns an image size scaled to fit into a frame, keeping the aspect ratio; at least one pixel per side.
Extent fit(Extent image, Extent frame);
/// Returns the size of an image scaled down to fit into a frame; the original size if it is not larger than
/// the frame.
Extent shrunk_to_fit(Extent image, Extent frame);

/// Reads images of a set as RGB, downscaled to fit into a frame if larger, with a cache of limited size.
/// Thread-safe; the result depends only on the index.
class ImageReader {
 public:
  /// The set must outlive the reader.
  ImageReader(const BoxedImages& set, int64_t height, int64_t width,
              std::shared_ptr<ImageCacheBudget> budget);

  /// Returns an image. Throws a UserError if the file is damaged or its size differs from the size in its
  /// labels.
  std::shared_ptr<const Image> read(int64_t index) const;

 private:
  const Image& read_file(int64_t index) const;

  const BoxedImages& set_;
  int64_t height_, width_;
  mutable ImageCache cache_;
};

}  // namespace hearth::data
