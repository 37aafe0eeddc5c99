#pragma once

#include <cstdint>
#include <vector>

#include "data/boxes/box.h"

namespace hearth::tasks {

/// A box that a model found: its corner and size in pixels of the picture as it is stored, as in COCO's
/// files.
struct Detection {
  double x = 0, y = 0, width = 0, height = 0;
  double score = 0;
  int32_t label = 0;
};

/// An object that is there. Crowds and ignored objects are neither found nor missed; of a detection on a
/// crowd the overlap is its share inside.
struct Truth {
  double x = 0, y = 0, width = 0, height = 0;
  double area = 0;  ///< of its outline, by which it is small, medium or large
  int32_t label = 0;
  bool crowd = false;
  bool ignored = false;
};

/// Boxes of one picture. The order of pictures by id settles ties of scores.
struct JudgedPicture {
  int64_t id = 0;
  std::vector<Truth> truths = {};
  std::vector<Detection> detections = {};
};

/// A labeled box as a truth: VOC's difficult objects are ignored.
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
