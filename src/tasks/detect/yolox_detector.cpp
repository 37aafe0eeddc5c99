#include <algorithm>

#include "models/yolox/yolox.h"
#include "tasks/detect/detector.h"
#include "tasks/detect/yolox_objective.h"

namespace hearth::tasks {
namespace {

constexpr int64_t kBoxFloats = 5;

class YoloxDetector : public Detector {
 public:
  explicit YoloxDetector(const DetectorOptions& options) : options_(options) {
    // Leaves pixels in the range 0 to 255, on which the published weights were trained.
    pixels_.mean = {0};
    pixels_.std.assign(1, 1.0F / 255);
  }

  std::shared_ptr<const engine::Objective> objective() const override {
    return yolox_objective({.model = options_.model,
                            .num_classes = options_.num_classes,
                            .height = options_.image_size.height,
                            .width = options_.image_size.width,
                            .max_boxes = options_.max_boxes,
                            .distill = options_.distill,
                            .teacher = options_.teacher ? options_.teacher->model : ""});
  }
  const data::PixelOptions& pixels() const override { return pixels_; }
  data::ArrayFormats target_formats(Extent) const override {
    return {{{"targets", options_.max_boxes * kBoxFloats * static_cast<int64_t>(sizeof(float))},
             {"l1_weight", sizeof(float)}}};
  }

  void write_targets(std::span<const data::Box> boxes, Extent, bool last_epochs,
                     std::span<std::byte* const> arrays) const override {
    auto* to = reinterpret_cast<float*>(arrays[0]);
    for (int64_t i = 0; i < options_.max_boxes; ++i, to += kBoxFloats) {
      std::fill_n(to, kBoxFloats, 0.0F);
      to[0] = -1;
      if (i >= std::ssize(boxes)) continue;
      const data::Box& box = boxes[static_cast<size_t>(i)];
      to[0] = static_cast<float>(box.label);
      to[1] = static_cast<float>((box.x0 + box.x1) / 2);
      to[2] = static_cast<float>((box.y0 + box.y1) / 2);
      to[3] = static_cast<float>(box.x1 - box.x0);
      to[4] = static_cast<float>(box.y1 - box.y0);
    }
    *reinterpret_cast<float*>(arrays[1]) = last_epochs ? 1 : 0;
  }

  std::vector<Detection> read(const engine::Engine& engine, int64_t row, Extent size,
                              double min_score) const override {
    const int64_t anchors = models::num_yolox_anchors(size.height, size.width);
    const int64_t width = kBoxFloats + options_.num_classes;
    const float* at = engine.output(kDecoded).data() + row * anchors * width;
    std::vector<Detection> made;
    for (int64_t i = 0; i < anchors; ++i, at += width) {
      const float* classes = at + kBoxFloats;
      const float* best = std::max_element(classes, classes + options_.num_classes);
      const double score = static_cast<double>(at[4]) * static_cast<double>(*best);
      if (!(score >= min_score)) continue;
      const double w = static_cast<double>(at[2]), h = static_cast<double>(at[3]);
      made.push_back({.x = static_cast<double>(at[0]) - w / 2,
                      .y = static_cast<double>(at[1]) - h / 2,
                      .width = w,
                      .height = h,
                      .score = score,
                      .label = static_cast<int32_t>(best - classes)});
    }
    return made;
  }

 private:
  DetectorOptions options_;
  data::PixelOptions pixels_;
};

}  // namespace

std::unique_ptr<Detector> open_yolox(const DetectorOptions& options) {
  return std::make_unique<YoloxDetector>(options);
}

}  // namespace hearth::tasks
