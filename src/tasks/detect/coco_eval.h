#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "tasks/detect/detection.h"

namespace hearth::tasks {

/// Result of COCO's evaluation of boxes (Lin et al. 2014), equal to pycocotools' COCOeval: precision at 101
/// recalls for ten IoU thresholds from 0.5 to 0.95, with at most 100 detections per class and image. Numbers
/// are -1 if there are no ground-truth boxes for them.
struct CocoResult {
  /// Average precision (AP), AP50, AP75, AP of small, medium, large objects; average recall (AR) with 1, 10,
  /// 100 detections, AR of small, medium, large objects.
  std::array<double, 12> numbers{};
  /// Results of one class.
  struct Class {
    double ap = -1, ap50 = -1;
    double recall = -1;  ///< mean over IoU thresholds, with 100 detections per image
    int64_t truths = 0;  ///< number of ground-truth boxes, without crowds and ignored ones
    /// Precision at recalls 0, 0.01 ... 1, at IoU 0.5; empty without ground-truth boxes.
    std::vector<double> precision_at_recall = {};
  };
  std::vector<Class> classes;
};

/// Evaluates the detections of a dataset. All labels must be below `num_classes`.
CocoResult evaluate_coco(std::span<const EvaluatedImage> images, int64_t num_classes);

/// Returns the twelve lines that pycocotools prints for CocoResult::numbers, each with a newline.
std::string coco_summary(const std::array<double, 12>& numbers);

}  // namespace hearth::tasks
