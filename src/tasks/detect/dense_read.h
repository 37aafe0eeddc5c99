#pragma once

#include <span>
#include <vector>

#include "tasks/detect/detection.h"
#include "tasks/detect/pyramid.h"

namespace hearth::tasks {

/// Predictions of a detector for one image at each anchor of a pyramid, before decoding.
struct DensePredictions {
  PyramidLevels levels;
  int64_t anchors_per_cell = 1;
  int64_t num_classes = 0;
  const float* logits = nullptr;  ///< class logits [anchors, classes]
  /// Logits [anchors]; null: none. If present, score = sqrt(class probability * centerness).
  const float* centerness = nullptr;
};
/// A predicted class at an anchor, with its score.
struct Candidate {
  int64_t anchor = 0;
  int32_t label = 0;
  double score = 0;
};
/// Returns the candidates with a score of at least `min_score`, at most 1000 per pyramid level (those with
/// the highest scores), in the order of levels.
std::vector<Candidate> best_of_levels(const DensePredictions& predictions, double min_score);

/// Returns a candidate as a detection. `x0` to `y1`: corners of its decoded box, which are clipped to an
/// image of `size`.
Detection detection_at(const Candidate& candidate, double x0, double y0, double x1, double y1, Extent size);

}  // namespace hearth::tasks
