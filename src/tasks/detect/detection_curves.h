#pragma once

#include <span>
#include <vector>

#include "tasks/detect/detection.h"

namespace hearth::tasks {

/// Precision, recall and F1 at IoU 0.5 as functions of the score threshold.
struct ConfidenceCurves {
  /// Values at score thresholds 0, 0.01 ... 1. Where there are no detections, the precision is 1. Without
  /// ground-truth boxes all values are 0.
  struct Curve {
    std::vector<double> precision, recall, f1;
  };
  std::vector<Curve> classes;
  Curve mean;  ///< mean over the classes with ground-truth boxes
  /// Score threshold with the highest mean F1, and this F1. Of equal ones the lowest threshold.
  double best_score = 0, best_f1 = 0;
};
/// Computes the curves of a dataset. All labels must be below `num_classes`.
ConfidenceCurves trace_confidence(std::span<const EvaluatedImage> images, int64_t num_classes);

/// Numbers of wrong detections and missed objects of an image, at IoU 0.5. `error`: sum of the scores of the
/// wrong detections, plus 1 for each missed object.
struct ImageErrors {
  int64_t num_wrong = 0, num_missed = 0;
  double error = 0;
};
/// Counts the errors of an image among detections with a score of at least `min_score`.
ImageErrors count_errors(const EvaluatedImage& image, double min_score);

struct ConfusionOptions {
  double score = 0.25;    ///< min score of a detection
  double overlap = 0.45;  ///< IoU that a match must exceed
};

/// Returns a confusion matrix [predicted][true] of num_classes + 1 classes. The last class is the background:
/// its column counts false positives, its row missed objects. Each box is matched at most once, pairs with
/// the highest IoU first, even if their classes differ. Ignored ground-truth boxes and the detections that
/// overlap them are not counted.
std::vector<int64_t> count_confusions(std::span<const EvaluatedImage> images, int64_t num_classes,
                                      const ConfusionOptions& options = {});

}  // namespace hearth::tasks
