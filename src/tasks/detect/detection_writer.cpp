#include "tasks/detect/detection_writer.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/run_files.h"
#include "data/images/augment.h"
#include "tasks/detect/detection_files.h"

namespace hearth::tasks {

DetectionWriter::DetectionWriter(std::unique_ptr<Detector> detector, DetectionClasses classes,
                                 DetectionWriterOptions options, fs::path folder)
    : detector_(std::move(detector)),
      classes_(std::move(classes)),
      options_(options),
      folder_(std::move(folder)) {}

/// Returns all detections in an image, for labels with a name.
std::vector<Detection> DetectionWriter::detect(engine::Engine& engine, const data::Image& image) {
  constexpr int64_t kChannels = 3;
  constexpr auto kSlack = static_cast<size_t>(engine::kInputSlack);
  const Extent size = options_.size;
  const data::EvalSample sample = data::letterbox(image, size.height, size.width);
  std::vector<float> pixels(static_cast<size_t>(size.num_pixels() * kChannels) + kSlack);
  data::Augmenter{detector_->pixels(), size, kChannels}.apply(0, 0, sample.image.pixels.data(),
                                                              pixels.data());
  engine::MicroBatch batch{{{"images", pixels.data()}}, 1};
  std::vector<std::vector<std::byte>> targets;
  std::vector<std::byte*> arrays;
  for (const data::ArrayFormat& format : detector_->target_formats(size)) {
    if (format.name == nullptr) break;
    arrays.push_back(targets.emplace_back(static_cast<size_t>(format.row_bytes) + kSlack).data());
    batch.add({format.name, arrays.back()});
  }
  detector_->write_targets({}, size, false, arrays);
  engine.evaluate(batch);
  std::vector<Detection> found = detections_of(*detector_, engine, 0, image.size(), size, options_.nms);
  std::erase_if(
      found, [&](const Detection& one) { return one.label >= static_cast<int32_t>(classes_.names.size()); });
  return found;
}

/// Returns the detections whose score is high enough to be drawn and listed.
std::vector<Detection> DetectionWriter::shown(std::vector<Detection> detections) const {
  std::erase_if(detections, [&](const Detection& one) { return one.score < options_.shown_score; });
  return detections;
}

ImagePrediction DetectionWriter::analyze(engine::Engine& engine, std::span<const std::byte> bytes,
                                         std::string_view name) {
  ImagePrediction prediction{.has_boxes = true};
  std::vector<Detection> found = shown(detect(engine, data::decode_image(bytes, 3, name, options_.exif)));
  std::ranges::stable_sort(found, std::greater(), &Detection::score);
  for (const Detection& one : found) {
    prediction.boxes.push_back({.name = classes_.names[static_cast<size_t>(one.label)],
                                .score = one.score,
                                .x = one.x,
                                .y = one.y,
                                .width = one.width,
                                .height = one.height});
  }
  return prediction;
}

std::string DetectionWriter::predict(engine::Engine& engine, const fs::path& image_file) {
  make_folder(folder_);
  make_inner_folder(folder_ / "labels");
  const MappedFile file(image_file);
  const data::Image image = data::decode_image(file.bytes(), 3, image_file.native(), options_.exif);
  EvaluatedImage judged{.id = std::ssize(images_) + 1, .detections = detect(engine, image)};
  const std::vector<Detection> listed = shown(judged.detections);
  const std::string stem = image_file.stem().string();
  write_file_atomically(folder_ / (stem + ".png"),
                        data::encode_png(draw_detections(image, listed, classes_.names, 0)));
  write_file_atomically(folder_ / "labels" / (stem + ".txt"),
                        write_yolo_labels(listed, image.width, image.height));
  images_.push_back(std::move(judged));
  names_.push_back(image_file.filename().string());
  std::map<std::string, int64_t> counts;
  for (const Detection& one : listed) ++counts[classes_.names[static_cast<size_t>(one.label)]];
  std::string line = image_file.string() + ":";
  for (const auto& [name, count] : counts)
    line += fmt::format("{} {} {}", line.back() == ':' ? "" : ",", count, name);
  if (counts.empty()) line += " nothing";
  return line + fmt::format(" -> {}", (folder_ / (stem + ".png")).string());
}

void DetectionWriter::finish() {
  write_file_atomically(folder_ / "predictions.json", write_coco_results(images_, classes_.category_ids));
  nlohmann::json images = nlohmann::json::array();
  for (size_t i = 0; i < names_.size(); ++i)
    images.push_back({{"id", images_[i].id}, {"file_name", names_[i]}});
  write_file_atomically(folder_ / "images.json", images.dump(1) + "\n");
}

}  // namespace hearth::tasks
