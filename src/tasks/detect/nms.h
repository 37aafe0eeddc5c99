#pragma once

#include <vector>

#include "tasks/detect/detection.h"

namespace hearth::tasks {

struct NmsOptions {
  double score = 0.01;           ///< lower ones are dropped
  double overlap = 0.65;         ///< more than this with a better one of the same class: dropped
  int64_t candidates = 1000;     ///< that are looked at, the best of all classes: bounds the time
  int64_t max_detections = 100;  ///< that are kept
};

/// Non-maximum suppression, class by class, greedy: what is kept, by falling score; the first of equal ones
/// comes first. Scores that are not numbers are dropped.
std::vector<Detection> suppress(std::vector<Detection> detections, const NmsOptions& options);

}  // namespace hearth::tasks
