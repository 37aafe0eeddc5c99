#pragma once

#include "data/boxes/box_augment.h"
#include "data/loader.h"
#include "tasks/detect/detector.h"

namespace hearth::tasks {

struct DetectRowOptions {
  Extent size;                 ///< input size of the detector
  std::vector<int64_t> sides;  ///< sides of the square inputs of multi-scale training; empty: always `size`
  bool is_training = false;    ///< true: images are augmented; false: only letterboxed
  data::BoxAugment augment;
  int64_t plain_from_epoch = 0;  ///< first epoch without mosaic and mixup
  int64_t max_boxes = 120;       ///< max boxes per image, without crowds; the largest ones are used
  std::shared_ptr<data::ImageCacheBudget> cache_budget;  ///< memory for decoded images; null: none are cached
};

/// Row source of a detector: images and the target arrays of their boxes.
class DetectRows : public data::RowSource {
 public:
  /// Throws a UserError if the options are invalid. `set` and `detector` must outlive the rows.
  DetectRows(const data::BoxedImages& set, const Detector& detector, DetectRowOptions options);

  int64_t num_rows() const override { return std::ssize(set_.images); }
  int64_t row_length(const data::LoaderPosition& begin) const override;
  data::ArrayFormats formats(int64_t length) const override;
  void make(const data::Row& row, const std::array<std::byte*, data::kMaxArrays>& arrays) const override;
  /// Returns the input size for a row length; options.size if the length is 0.
  Extent size_of(int64_t length) const;
  /// Returns the augmented image of a row and the boxes that count in the loss: no crowd boxes, at most
  /// max_boxes.
  data::BoxSample training_sample(const data::Row& row) const;

 private:
  /// True if the epoch of the row is trained without mosaic and mixup.
  bool is_plain(const data::Row& row) const { return row.epoch >= options_.plain_from_epoch; }
  data::BoxSample augmented_sample(const data::Row& row) const;

  const data::BoxedImages& set_;
  const Detector& detector_;
  DetectRowOptions options_;
  data::ImageReader reader_;
};

}  // namespace hearth::tasks
