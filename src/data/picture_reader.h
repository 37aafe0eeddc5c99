#pragma once

#include <cstdint>
#include <memory>

#include "data/boxes/box.h"
#include "data/images/image.h"
#include "data/picture_cache.h"

namespace hearth::data {

/// The size of a picture scaled to fit into a frame, at least a pixel each way.
Extent fit(Extent picture, Extent frame);
/// The same, or the picture's own size where it fits as it is.
Extent shrunk_to_fit(Extent picture, Extent frame);

/// Pictures of a set as RGB, those that are larger than a frame shrunk to fit into it. Keeps what it has read
/// while the budget has room. Safe to use from several threads; what it returns depends on the index alone.
class PictureReader {
 public:
  /// The set must outlive the reader.
  PictureReader(const BoxedPictures& set, int64_t height, int64_t width,
                std::shared_ptr<PictureBudget> budget);

  /// UserError where the file is damaged or of another size than its labels say.
  std::shared_ptr<const Image> read(int64_t index) const;

 private:
  const Image& read_file(int64_t index) const;

  const BoxedPictures& set_;
  int64_t height_, width_;
  mutable PictureCache cache_;
};

}  // namespace hearth::data
