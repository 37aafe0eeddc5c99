#pragma once

#include "tasks/detect/detect_task.h"
#include "tasks/predictor.h"

namespace hearth::tasks {

struct DetectFilesOptions {
  Extent size;  ///< of the pictures that the model takes
  NmsOptions nms;
  double shown_score = 0.25;
  Exif exif = Exif::apply;
};

/// Writes into a folder, for each picture, NAME.png with the boxes drawn and labels/NAME.txt in YOLO's lines;
/// and predictions.json, COCO's results, whose image_id counts the pictures from 1 in the order in which they
/// came, as images.json says.
class DetectFiles : public Predictor {
 public:
  DetectFiles(std::unique_ptr<Detector> detector, DetectionClasses classes, DetectFilesOptions options,
              fs::path folder);
  std::string predict(engine::Engine& engine, const fs::path& picture) override;
  void finish() override;

 private:
  std::unique_ptr<Detector> detector_;
  DetectionClasses classes_;
  DetectFilesOptions options_;
  fs::path folder_;
  std::vector<JudgedPicture> judged_;
  std::vector<std::string> names_;
};

}  // namespace hearth::tasks
