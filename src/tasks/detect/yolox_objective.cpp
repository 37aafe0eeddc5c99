#include "tasks/detect/yolox_objective.h"

#include "models/yolox/yolox.h"
#include "ops/detect/detect.h"
#include "ops/op_list.h"
#include "tasks/detect/losses.h"

namespace hearth::tasks {
namespace {

using ir::ValueId;
using nn::Builder;

/// Weight of the IoU loss, as in the paper.
constexpr double kBoxWeight = 5;

ir::Attrs grid_attrs(int64_t height, int64_t width) {
  const auto& strides = models::kYoloxStrides;
  return {{"strides", std::vector<int64_t>(strides.begin(), strides.end())},
          {"height", height},
          {"width", width}};
}

/// Loss terms of every anchor. Rows are the anchors of all images. Background anchors have no box and class
/// losses; their box predictions are set to 0 before exp, so that an overflow does not reach the sum.
class AnchorLosses {
 public:
  AnchorLosses(Builder& builder, ValueId raw, std::span<const ValueId> assignment)
      : builder_(builder),
        shape_(builder.graph().type(raw).shape),
        rows_(shape_[0] * shape_[1]),
        raw_(reshaped(builder, raw, {rows_, shape_[2]})),
        label_(assignment[ops::SimOtaOut::label]),
        assigned_(reshaped(builder, assignment[ops::SimOtaOut::assigned], {rows_, 1})),
        target_(reshaped(builder, assignment[ops::SimOtaOut::box], {rows_, 4})),
        iou_(reshaped(builder, assignment[ops::SimOtaOut::iou], {rows_, 1})),
        box_(builder.op("scale_rows", {columns(builder, raw_, 0, 4), assigned_})) {}

  /// Each function returns one loss term, [rows, 1]: of_box (1 - IoU^2), of_object (objectness), of_class and
  /// of_distance (L1 of boxes).
  ValueId of_box() {
    const ValueId size = builder_.op("exp", {columns(builder_, box_, 2, 2)});
    const ValueId box = builder_.concat({columns(builder_, box_, 0, 2), size});
    const ValueId squared = builder_.op("square", {box_iou(builder_, box, target_)});
    return learned(builder_.op("add_scalar", {builder_.op("neg", {squared})}, {{"value", 1.0}}));
  }
  ValueId of_object() { return binary_cross_entropy(builder_, columns(builder_, raw_, 4, 1), assigned_); }
  /// `teacher`: compares the class logits of each anchor with those of a teacher.
  ValueId of_class(const TeacherLoss& teacher) {
    const int64_t classes = shape_[2] - 5;
    const ValueId one_hot = builder_.op("one_hot", {label_}, {{"classes", classes}});
    const ValueId wanted = builder_.op("scale_rows", {reshaped(builder_, one_hot, {rows_, classes}), iou_});
    const ValueId of_labels =
        sum_of_row(builder_, binary_cross_entropy(builder_, columns(builder_, raw_, 5, classes), wanted));
    return learned(teacher.mix(builder_, of_labels));
  }
  ValueId of_distance() {
    const ValueId size = builder_.op("add_scalar", {columns(builder_, target_, 2, 2)}, {{"value", 1e-8}});
    const ValueId wanted = builder_.concat({columns(builder_, target_, 0, 2), builder_.op("log", {size})});
    return learned(sum_of_row(builder_, builder_.op("abs", {builder_.op("sub", {box_, wanted})})));
  }
  /// Returns the sum of each image's rows: [rows, 1] -> [images].
  ValueId per_image(ValueId losses) {
    return builder_.op("sum_trailing", {reshaped(builder_, losses, {shape_[0], shape_[1]})});
  }
  /// Returns 1 for positive anchors, otherwise 0: [rows, 1].
  ValueId assigned() const { return assigned_; }

 private:
  ValueId learned(ValueId losses) { return builder_.op("mul", {losses, assigned_}); }

  Builder& builder_;
  Shape shape_;
  int64_t rows_;
  ValueId raw_, label_, assigned_, target_, iou_, box_;
};

class YoloxObjective : public engine::Objective {
 public:
  explicit YoloxObjective(YoloxOptions options)
      : options_(std::move(options)), size_(models::find_yolox(options_.model)) {}

  Graph build(Builder& builder, engine::BatchShape shape) const override {
    const int64_t rows = shape.num_rows;
    const int64_t height = shape.row_length > 0 ? shape.row_length : options_.height;
    const int64_t width = shape.row_length > 0 ? shape.row_length : options_.width;
    const auto input = [&](const char* name, const Shape& axes) {
      return builder.input(name, {.dtype = DType::f32, .shape = axes});
    };
    Graph made{.inputs = {input("images", {rows, height, width, 3}),
                          input("targets", {rows, options_.max_boxes, 5}), input("l1_weight", {rows})}};
    const ValueId predicted = models::build_yolox(builder, made.inputs[0], size_, options_.num_classes);
    const ValueId raw = builder.op("cast", {predicted}, {{"dtype", std::string("f32")}});
    made.losses = yolox_losses(builder, raw, made.inputs[1], made.inputs[2], height, width,
                               teacher_loss(builder, made.inputs[0], raw));
    if (builder.mode() == Builder::Mode::train) return made;
    made.outputs = {builder.op("yolox_decode", {raw}, grid_attrs(height, width))};
    made.exported = {{"detections", made.outputs[0]}};
    return made;
  }

 private:
  TeacherLoss teacher_loss(Builder& builder, ValueId images, ValueId raw) const {
    const int64_t classes = options_.num_classes;
    return compare_classes(builder, options_.distill, columns(builder, raw, 5, classes), [&] {
      const ValueId teacher =
          models::build_yolox(builder, images, models::find_yolox(options_.teacher), classes);
      return columns(builder, teacher, 5, classes);
    });
  }

  YoloxOptions options_;
  models::YoloxSize size_;
};

}  // namespace

ValueId yolox_losses(Builder& builder, ValueId raw, ValueId targets, ValueId l1_weight, int64_t height,
                     int64_t width, const TeacherLoss& teacher) {
  const std::vector<ValueId> assignment =
      builder.graph().add(ops::simota, {raw, targets}, grid_attrs(height, width), "assignment");
  AnchorLosses anchors(builder, raw, assignment);
  const ValueId of_box = builder.op("scale", {anchors.of_box()}, {{"factor", kBoxWeight}});
  const ValueId common = builder.add(builder.add(of_box, anchors.of_object()), anchors.of_class(teacher));
  const ValueId distance = builder.op("mul", {anchors.per_image(anchors.of_distance()), l1_weight});
  const ValueId sums = builder.add(anchors.per_image(common), distance);
  return per_positive_anchor(builder, sums, anchors.assigned());
}

std::shared_ptr<const engine::Objective> yolox_objective(YoloxOptions options) {
  return std::make_shared<YoloxObjective>(std::move(options));
}

}  // namespace hearth::tasks
