#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/boxes/box.h"
#include "tasks/detect/detection.h"

namespace hearth::tasks {

/// Returns detections as COCO results, a JSON list of {image_id, category_id, bbox, score}, with shortest
/// round-trip numbers. `category_ids`: by label.
std::string write_coco_results(std::span<const EvaluatedImage> images, std::span<const int64_t> category_ids);

/// A set's boxes as truths, without detections.
std::vector<EvaluatedImage> truths_of(const data::BoxedImages& set);

/// Returns lines "class cx cy width height score" (YOLO), relative to the image's size.
std::string write_yolo_labels(std::span<const Detection> detections, int64_t width, int64_t height);

}  // namespace hearth::tasks
