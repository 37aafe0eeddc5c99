#pragma once

#include <cstdint>
#include <vector>

#include "data/boxes/box.h"

namespace hearth::tasks {

/// A detected box: upper left corner and size in pixels of the stored image, as in COCO's files.
struct Detection {
  double x = 0, y = 0, width = 0, height = 0;
  double score = 0;
  int32_t label = 0;
};

/// A ground-truth box. Crowds and ignored objects count neither as found nor as missed. The overlap of a
/// detection with a crowd is the fraction of the detection's area inside the crowd's box, not the IoU.
struct Truth {
  double x = 0, y = 0, width = 0, height = 0;
  /// Area of the object's outline in square pixels, by which it counts as small, medium or large.
  double area = 0;
  int32_t label = 0;
  bool crowd = false;
  bool ignored = false;
};

/// Ground truth and detections of one image. Equal scores are sorted by image id.
struct EvaluatedImage {
  int64_t id = 0;
  std::vector<Truth> truths = {};
  std::vector<Detection> detections = {};
};

/// Converts a labeled box to ground truth. Crowds and VOC's difficult objects are ignored.
inline Truth truth_of(const data::Box& box) {
  return {.x = box.x0,
          .y = box.y0,
          .width = box.x1 - box.x0,
          .height = box.y1 - box.y0,
          .area = box.area,
          .label = box.label,
          .crowd = box.crowd,
          .ignored = box.crowd || box.difficult};
}

}  // namespace hearth::tasks
