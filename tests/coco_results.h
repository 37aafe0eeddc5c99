#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tasks/detect/detection_files.h"

namespace hearth::tasks {

/// Returns a set's boxes as truths with the detections of COCO's results for it.
inline std::vector<EvaluatedImage> read_coco_results(std::string_view text, const data::BoxedImages& set) {
  std::vector<EvaluatedImage> images = truths_of(set);
  for (const nlohmann::json& result : nlohmann::json::parse(text)) {
    const auto image = std::ranges::find(images, result.at("image_id").get<int64_t>(), &EvaluatedImage::id);
    const auto label = std::ranges::find(set.category_ids, result.at("category_id").get<int64_t>());
    const nlohmann::json& box = result.at("bbox");
    image->detections.push_back({.x = box.at(0),
                                 .y = box.at(1),
                                 .width = box.at(2),
                                 .height = box.at(3),
                                 .score = result.at("score"),
                                 .label = static_cast<int32_t>(label - set.category_ids.begin())});
  }
  return images;
}

}  // namespace hearth::tasks
