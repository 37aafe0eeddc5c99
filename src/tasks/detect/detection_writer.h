#pragma once

#include "tasks/detect/detect_task.h"
#include "tasks/predictor.h"

namespace hearth::tasks {

struct DetectionWriterOptions {
  Extent size;  ///< input size of the model
  NmsOptions nms;
  /// Min score of the boxes that are drawn and listed.
  double shown_score = 0.25;
  Exif exif = Exif::apply;
};

/// Writes detections of images into a folder. For each image: NAME.png with the boxes drawn and
/// labels/NAME.txt in YOLO's format. For all images: predictions.json (COCO results) and images.json, which
/// maps each image_id of predictions.json to a file name. Images are numbered from 1 in the order of
/// predict() calls.
class DetectionWriter : public Predictor {
 public:
  DetectionWriter(std::unique_ptr<Detector> detector, DetectionClasses classes,
                  DetectionWriterOptions options, fs::path folder);
  ImagePrediction analyze(engine::Engine& engine, std::span<const std::byte> image,
                          std::string_view name) override;
  std::string predict(engine::Engine& engine, const fs::path& image) override;
  void finish() override;

 private:
  std::vector<Detection> detect(engine::Engine& engine, const data::Image& image);
  std::vector<Detection> shown(std::vector<Detection> detections) const;

  std::unique_ptr<Detector> detector_;
  DetectionClasses classes_;
  DetectionWriterOptions options_;
  fs::path folder_;
  std::vector<EvaluatedImage> images_;
  std::vector<std::string> names_;
};

}  // namespace hearth::tasks
