#pragma once

#include "data/boxes/box_augment.h"
#include "data/loader.h"
#include "tasks/detect/detector.h"

namespace hearth::tasks {

struct DetectRowOptions {
  Extent size;  ///< of pictures
  std::vector<int64_t>
      sides;                 ///< training: sides of square pictures, another every ten batches; empty: `size`
  bool is_training = false;  ///< augmented; else each picture as it is
  data::BoxAugment augment;
  int64_t plain_from_epoch = 0;               ///< from here on without mosaic and mixup
  int64_t max_boxes = 120;                    ///< the largest of a picture; crowds are left out
  std::shared_ptr<data::PictureBudget> keep;  ///< for decoded pictures; null: none is kept
};

/// Pictures with boxes as rows of a detector's arrays.
class DetectRows : public data::RowSource {
 public:
  /// UserError where the options do not fit. Set and detector must outlive it.
  DetectRows(const data::BoxedPictures& set, const Detector& detector, DetectRowOptions options);

  int64_t num_rows() const override { return std::ssize(set_.pictures); }
  int64_t row_length(const data::LoaderPosition& begin) const override;
  data::ArrayFormats formats(int64_t length) const override;
  void make(const data::Row& row, const std::array<std::byte*, data::kMaxArrays>& arrays) const override;

 private:
  Extent size_of(int64_t length) const;
  data::BoxSample sample(const data::Row& row, Extent size, bool is_plain) const;

  const data::BoxedPictures& set_;
  const Detector& detector_;
  DetectRowOptions options_;
  data::PictureReader reader_;
};

}  // namespace hearth::tasks
