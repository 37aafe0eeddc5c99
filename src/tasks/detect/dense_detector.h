#pragma once

#include "models/fpn/fpn.h"
#include "tasks/detect/detector.h"

namespace hearth::tasks {

/// What the detectors on feature pyramids have in common. Pictures are normalized as for ImageNet.
class DenseDetector : public Detector {
 public:
  explicit DenseDetector(const DetectorOptions& options);
  const data::PixelOptions& pixels() const override { return pixels_; }

 protected:
  const DetectorOptions& options() const { return options_; }

 private:
  DetectorOptions options_;
  data::PixelOptions pixels_;
};

models::PyramidOptions body_of(const DetectorOptions& options);
/// Of the pictures of a micro-batch.
Extent picture_size(const DetectorOptions& options, engine::BatchShape shape);

}  // namespace hearth::tasks
