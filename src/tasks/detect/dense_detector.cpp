#include "tasks/detect/dense_detector.h"

namespace hearth::tasks {

DenseDetector::DenseDetector(const DetectorOptions& options) : options_(options) {
  pixels_.mean = {0.485F, 0.456F, 0.406F};
  pixels_.std = {0.229F, 0.224F, 0.225F};
}

models::PyramidOptions backbone_options(const DetectorOptions& options) {
  models::PyramidOptions body{.frozen_norm = options.frozen_norm};
  if (options.width > 0) body.width = options.width;
  return body;
}

Extent input_size(const DetectorOptions& options, engine::BatchShape shape) {
  return shape.row_length > 0 ? Extent(shape.row_length) : options.image_size;
}

}  // namespace hearth::tasks
