#pragma once

#include <span>
#include <vector>

#include "tasks/detect/detection.h"

namespace hearth::tasks {

/// Precision, recall and F1 at IoU 0.5 as functions of the score threshold.
struct ConfidenceCurves {
  /// Values at thresholds 0, 0.01 ... 1. Without detections the precision is 1; without ground-truth boxes
  /// all are 0.
  struct Curve {
    std::vector<double> precision, recall, f1;
  };
  std::vector<Curve> classes;
  Curve mean;  ///< over the classes with ground-truth boxes
  /// Threshold and value of the highest mean F1; the lowest threshold of equal ones.
  double best_score = 0, best_f1 = 0;
};
/// Computes the curves of all images. Labels must be below `num_classes`.
ConfidenceCurves trace_confidence(std::span<const EvaluatedImage> images, int64_t num_classes);

struct ConfusionOptions {
  double score = 0.25;    ///< min score of a detection
  double overlap = 0.45;  ///< a match has a higher IoU
};

/// Returns counts [predicted][true] of num_classes + 1 classes; the last is the background: false positives
/// in its column, missed objects in its row. Each box is matched once, pairs with the highest IoU first, even
/// if their classes differ. Ignored ground-truth boxes and the detections that overlap them are not counted.
std::vector<int64_t> count_confusions(std::span<const EvaluatedImage> images, int64_t num_classes,
                                      const ConfusionOptions& options = {});

}  // namespace hearth::tasks
