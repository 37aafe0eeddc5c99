#pragma once

#include "models/fpn/fpn.h"
#include "tasks/detect/detector.h"

namespace hearth::tasks {

/// Base class of the detectors with a feature pyramid (RetinaNet, FCOS). Images are normalized with
/// ImageNet's mean and std.
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

/// Returns the options of the backbone and feature pyramid.
models::PyramidOptions backbone_options(const DetectorOptions& options);
/// Returns the image size of a micro-batch: a square of row_length pixels, or options.image_size if that is
/// 0.
Extent input_size(const DetectorOptions& options, engine::BatchShape shape);

}  // namespace hearth::tasks
