#include <algorithm>
#include <cmath>

#include "tasks/detect/anchors.h"
#include "tasks/detect/dense_detector.h"
#include "tasks/detect/dense_losses.h"
#include "tasks/detect/dense_read.h"
#include "tasks/detect/losses.h"

namespace hearth::tasks {
namespace {

using ir::ValueId;
using nn::Builder;

/// Max logarithm of the ratio of a decoded side to the anchor's side, as in torchvision; prevents overflow of
/// exp.
const double kMaxLogScale = std::log(1000.0 / 16);

/// Indices of the target arrays, which have an entry for every anchor: the class or an Anchors::Match, the 4
/// regression targets, and the weights of class loss and box loss.
struct AnchorInput {
  enum : size_t { labels, boxes, class_weights, box_weights };
};
struct AnchorOutput {
  enum : size_t { logits, boxes };
};

class RetinanetObjective : public engine::Objective {
 public:
  explicit RetinanetObjective(DetectorOptions options) : options_(std::move(options)) {}

  Graph build(Builder& builder, engine::BatchShape shape) const override {
    const Extent size = input_size(options_, shape);
    const int64_t rows = shape.num_rows;
    const int64_t anchors = models::kRetinanetAnchors * num_cells(pyramid_levels(size));
    const auto input = [&](const char* name, const Shape& axes, DType dtype = DType::f32) {
      return builder.input(name, {.dtype = dtype, .shape = axes});
    };
    Graph made{.inputs = {input("images", {rows, size.height, size.width, 3}),
                          input("labels", {rows, anchors}, DType::i32), input("boxes", {rows, anchors, 4}),
                          input("class_weights", {rows, anchors}), input("box_weights", {rows, anchors})}};
    const std::span<const ValueId> targets = std::span(made.inputs).subspan(1);
    const models::RetinanetOutputs predicted =
        models::build_retinanet(builder, made.inputs[0], backbone_options(options_), options_.num_classes);
    const TeacherLoss teacher = compare_classes(builder, options_.distill, predicted.logits, [&] {
      return models::build_retinanet(builder, made.inputs[0], backbone_options(*options_.teacher),
                                     options_.num_classes)
          .logits;
    });
    const ValueId of_class =
        teacher.mix(builder, class_losses(builder, predicted.logits, targets[AnchorInput::labels]));
    const ValueId distance =
        builder.op("abs", {builder.op("sub", {predicted.boxes, targets[AnchorInput::boxes]})});
    const ValueId of_box = sum_of_row(builder, reshaped(builder, distance, {rows * anchors, 4}));
    made.losses = builder.add(sum_per_image(builder, of_class, targets[AnchorInput::class_weights], rows),
                              sum_per_image(builder, of_box, targets[AnchorInput::box_weights], rows));
    if (builder.mode() == Builder::Mode::eval) made.outputs = {predicted.logits, predicted.boxes};
    return made;
  }

 private:
  DetectorOptions options_;
};

/// Returns the regression targets of a box relative to its anchor (models::RetinanetOutputs).
std::array<float, 4> encoded(const data::Box& box, const AnchorBox& anchor) {
  const double width = anchor.x1 - anchor.x0, height = anchor.y1 - anchor.y0;
  return {static_cast<float>(((box.x0 + box.x1) - (anchor.x0 + anchor.x1)) / 2 / width),
          static_cast<float>(((box.y0 + box.y1) - (anchor.y0 + anchor.y1)) / 2 / height),
          static_cast<float>(std::log((box.x1 - box.x0) / width)),
          static_cast<float>(std::log((box.y1 - box.y0) / height))};
}

/// Returns a candidate's box from its anchor and the predicted offsets; the inverse of encoded().
Detection decoded(const Candidate& candidate, const AnchorBox& anchor, const float* offsets, Extent size) {
  const double width = anchor.x1 - anchor.x0, height = anchor.y1 - anchor.y0;
  const auto offset = [&](int i) { return static_cast<double>(offsets[candidate.anchor * 4 + i]); };
  const double x = (anchor.x0 + anchor.x1) / 2 + offset(0) * width;
  const double y = (anchor.y0 + anchor.y1) / 2 + offset(1) * height;
  const double half_width = std::exp(std::min(offset(2), kMaxLogScale)) * width / 2;
  const double half_height = std::exp(std::min(offset(3), kMaxLogScale)) * height / 2;
  return detection_at(candidate, x - half_width, y - half_height, x + half_width, y + half_height, size);
}

class RetinanetDetector : public DenseDetector {
 public:
  using DenseDetector::DenseDetector;

  std::shared_ptr<const engine::Objective> objective() const override {
    return std::make_shared<RetinanetObjective>(options());
  }
  data::ArrayFormats target_formats(Extent size) const override {
    const auto floats = static_cast<int64_t>(sizeof(float)) * Anchors(size).count();
    return {{{"labels", floats}, {"boxes", 4 * floats}, {"class_weights", floats}, {"box_weights", floats}}};
  }

  void write_targets(std::span<const data::Box> boxes, Extent size, bool,
                     std::span<std::byte* const> arrays) const override {
    const Anchors anchors(size);
    const std::vector<int32_t> matches = anchors.match(boxes);
    const auto num_matched = std::ranges::count_if(matches, [](int32_t match) { return match >= 0; });
    const float weight = 1 / static_cast<float>(std::max<int64_t>(1, num_matched));
    auto* labels = reinterpret_cast<int32_t*>(arrays[AnchorInput::labels]);
    auto* offsets = reinterpret_cast<float*>(arrays[AnchorInput::boxes]);
    auto* class_weights = reinterpret_cast<float*>(arrays[AnchorInput::class_weights]);
    auto* box_weights = reinterpret_cast<float*>(arrays[AnchorInput::box_weights]);
    for (size_t i = 0; i < matches.size(); ++i) {
      const int32_t match = matches[i];
      labels[i] = match;
      class_weights[i] = match == Anchors::kUndecided ? 0 : weight;
      box_weights[i] = match >= 0 ? weight : 0;
      std::array<float, 4> offset = {};
      if (match >= 0) {
        const data::Box& box = boxes[static_cast<size_t>(match)];
        labels[i] = box.label;
        offset = encoded(box, anchors.at(static_cast<int64_t>(i)));
      }
      std::ranges::copy(offset, offsets + 4 * i);
    }
  }

  std::vector<Detection> read(const engine::Engine& engine, int64_t row, Extent size,
                              double min_score) const override {
    const Anchors anchors(size);
    const int64_t count = anchors.count();
    const float* offsets = engine.output(AnchorOutput::boxes).data() + row * count * 4;
    const DensePredictions predictions{
        .levels = anchors.levels(),
        .anchors_per_cell = models::kRetinanetAnchors,
        .num_classes = options().num_classes,
        .logits = engine.output(AnchorOutput::logits).data() + row * count * options().num_classes};
    std::vector<Detection> made;
    for (const Candidate& candidate : best_of_levels(predictions, min_score))
      made.push_back(decoded(candidate, anchors.at(candidate.anchor), offsets, size));
    return made;
  }
};

}  // namespace

std::unique_ptr<Detector> open_retinanet(const DetectorOptions& options) {
  return std::make_unique<RetinanetDetector>(options);
}

}  // namespace hearth::tasks
