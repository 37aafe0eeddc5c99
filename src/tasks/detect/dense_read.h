#pragma once

#include <span>
#include <vector>

#include "tasks/detect/detection.h"
#include "tasks/detect/pyramid.h"

namespace hearth::tasks {

/// What a detector says of a picture at each anchor of a pyramid, before it is decoded.
struct DensePredictions {
  PyramidLevels levels;
  int64_t anchors_per_cell = 1;
  int64_t num_classes = 0;
  const float* logits = nullptr;      ///< [anchors, classes]
  const float* centerness = nullptr;  ///< logits [anchors]; the score is the square root of both; or null
};
struct Candidate {
  int64_t anchor = 0;
  int32_t label = 0;
  double score = 0;
};
/// The best thousand of each level that reach the score, in the order of levels.
std::vector<Candidate> best_of_levels(const DensePredictions& predictions, double least_score);

/// A candidate whose corners were decoded, inside a picture of that size.
Detection detection_at(const Candidate& candidate, double x0, double y0, double x1, double y1, Extent size);

}  // namespace hearth::tasks
