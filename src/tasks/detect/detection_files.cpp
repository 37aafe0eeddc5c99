#include "tasks/detect/detection_files.h"

#include <fmt/format.h>

namespace hearth::tasks {

std::string write_coco_results(std::span<const EvaluatedImage> images,
                               std::span<const int64_t> category_ids) {
  std::string text = "[";
  for (const EvaluatedImage& image : images) {
    for (const Detection& found : image.detections) {
      text += fmt::format(
          "{}\n{{\"image_id\": {}, \"category_id\": {}, \"bbox\": [{}, {}, {}, {}], \"score\": {}}}",
          text.size() == 1 ? "" : ",", image.id, category_ids[static_cast<size_t>(found.label)], found.x,
          found.y, found.width, found.height, found.score);
    }
  }
  return text + "]\n";
}

std::vector<EvaluatedImage> truths_of(const data::BoxedImages& set) {
  std::vector<EvaluatedImage> images;
  for (const data::BoxedImage& image : set.images) {
    images.push_back({.id = image.id});
    for (const data::Box& box : image.boxes) images.back().truths.push_back(truth_of(box));
  }
  return images;
}

std::string write_yolo_labels(std::span<const Detection> detections, int64_t width, int64_t height) {
  const auto across = static_cast<double>(width), down = static_cast<double>(height);
  std::string text;
  for (const Detection& found : detections) {
    text += fmt::format("{} {:.6f} {:.6f} {:.6f} {:.6f} {:.6f}\n", found.label,
                        (found.x + found.width / 2) / across, (found.y + found.height / 2) / down,
                        found.width / across, found.height / down, found.score);
  }
  return text;
}

}  // namespace hearth::tasks
