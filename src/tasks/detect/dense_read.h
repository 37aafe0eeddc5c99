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
  const float* logits = nullptr;      ///< [anchors, classes]
  const float* centerness = nullptr;  ///< logits [anchors]; null: none. Score: sqrt(class * centerness)
};
/// A class predicted at an anchor, with its probability.
struct Candidate {
  int64_t anchor = 0;
  int32_t label = 0;
  double score = 0;
};
/// Returns the candidates with at least `min_score`, at most the 1000 best of each level, in the order of
/// levels.
std::vector<Candidate> best_of_levels(const DensePredictions& predictions, double min_score);

/// Returns a candidate with decoded corners as a detection, clipped to an image of `size`.
Detection detection_at(const Candidate& candidate, double x0, double y0, double x1, double y1, Extent size);

}  // namespace hearth::tasks
