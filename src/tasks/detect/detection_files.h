#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/boxes/box.h"
#include "tasks/detect/detection.h"

namespace hearth::tasks {

/// COCO's results: a list of {image_id, category_id, bbox, score}; numbers keep every digit. Detections'
/// labels become the set's category ids.
std::string write_coco_results(std::span<const JudgedPicture> pictures,
                               std::span<const int64_t> category_ids);

/// A set's boxes as truths, without detections.
std::vector<JudgedPicture> truths_of(const data::BoxedPictures& set);

/// YOLO's lines "class cx cy width height score", shares of a picture of this size.
std::string write_yolo_labels(std::span<const Detection> detections, int64_t width, int64_t height);

}  // namespace hearth::tasks
