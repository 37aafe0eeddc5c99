#pragma once

#include <vector>

#include "tasks/detect/detection.h"

namespace hearth::tasks {

struct NmsOptions {
  double score = 0.01;    ///< min score of a detection
  double overlap = 0.65;  ///< max IoU of a detection with a kept detection of the same class
  /// Max boxes that are compared, those with the highest scores of all classes; limits the time.
  int64_t candidates = 1000;
  int64_t max_detections = 100;  ///< max boxes returned
};

/// Applies greedy non-maximum suppression per class. Returns the kept detections by descending score; equal
/// scores keep their order. Detections with a NaN score are dropped.
std::vector<Detection> suppress(std::vector<Detection> detections, const NmsOptions& options);

}  // namespace hearth::tasks
