#pragma once

#include <span>
#include <vector>

#include "tasks/detect/detection.h"

namespace hearth::tasks {

/// What a threshold of the score makes of detections at overlap 0.5.
struct ConfidenceCurves {
  /// At scores 0, 0.01 ... 1. Of no detections the precision is 1; without truth all are 0.
  struct Curve {
    std::vector<double> precision, recall, f1;
  };
  std::vector<Curve> classes;
  Curve mean;                          ///< over the classes that have truths
  double best_score = 0, best_f1 = 0;  ///< of the mean; the lowest of equal ones
};
ConfidenceCurves trace_confidence(std::span<const JudgedPicture> pictures, int64_t num_classes);

struct ConfusionOptions {
  double score = 0.25;    ///< lower detections are left out
  double overlap = 0.45;  ///< less is no match
};

/// Counts [found][true] of num_classes + 1 classes, the last of which is the background: what was found where
/// nothing is, and what was missed. Each box is matched once, pairs of most overlap first, whatever their
/// classes. Ignored truths count for nothing, and neither do detections on them.
std::vector<int64_t> count_confusions(std::span<const JudgedPicture> pictures, int64_t num_classes,
                                      const ConfusionOptions& options = {});

}  // namespace hearth::tasks
