#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/boxes/box.h"
#include "tasks/detect/detection.h"

namespace hearth::tasks {

/// Returns detections as COCO results, a JSON list of {image_id, category_id, bbox, score}, with the shortest
/// numbers that parse to the same values. `category_ids`: COCO category id of each label.
std::string write_coco_results(std::span<const EvaluatedImage> images, std::span<const int64_t> category_ids);

/// Converts the labeled boxes of a set to ground truth; the result has no detections yet.
std::vector<EvaluatedImage> truths_of(const data::BoxedImages& set);

/// Returns a line "class cx cy width height score" for each detection (YOLO's format): center and size as
/// fractions of the image's size.
std::string write_yolo_labels(std::span<const Detection> detections, int64_t width, int64_t height);

}  // namespace hearth::tasks
