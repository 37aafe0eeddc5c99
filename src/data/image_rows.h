#pragma once

#include "data/dataset.h"
#include "data/loader.h"

namespace hearth::data {

/// Labeled images as rows of two arrays: images f32 [height, width, channels], normalized and
/// augmented, and labels i32.
class ImageRows : public RowSource {
 public:
  /// Throws a UserError if the options do not match the images. The dataset must outlive this object.
  ImageRows(const Dataset& dataset, PixelOptions options);

  int64_t num_rows() const override { return dataset_.size(); }
  ArrayFormats formats(int64_t length) const override;
  int64_t scratch_bytes() const override { return dataset_.image_size().num_pixels() * dataset_.channels(); }
  void make(const Row& row, const std::array<std::byte*, kMaxArrays>& arrays) const override;

  static const float* images(const Batch& batch) { return batch.array<float>(0); }
  static const int32_t* labels(const Batch& batch) { return batch.array<int32_t>(1); }

 private:
  const Dataset& dataset_;
  PixelOptions options_;
};

}  // namespace hearth::data
