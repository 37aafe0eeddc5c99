#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "tasks/detect/detection.h"

namespace hearth::tasks {

/// COCO's evaluation of boxes (Lin et al., 2014, as in pycocotools' COCOeval): precision at 101 recalls for
/// ten overlaps from 0.5 to 0.95, at most 100 detections a class and picture. -1 where there is no truth.
struct CocoResult {
  /// AP, AP50, AP75, AP small, medium, large; AR with 1, 10, 100 detections, AR small, medium, large.
  std::array<double, 12> numbers{};
  struct Class {
    double ap = -1, ap50 = -1;
    double recall = -1;  ///< mean over overlaps, 100 detections
    int64_t truths = 0;  ///< crowds and ignored ones are left out
    /// At overlap 0.5: precision at recalls 0, 0.01 ... 1; empty without truth.
    std::vector<double> precision_at_recall = {};
  };
  std::vector<Class> classes;
};

/// Labels are below `num_classes`.
CocoResult evaluate_coco(std::span<const JudgedPicture> pictures, int64_t num_classes);

/// The twelve lines that pycocotools prints, each with a newline.
std::string coco_summary(const std::array<double, 12>& numbers);

}  // namespace hearth::tasks
