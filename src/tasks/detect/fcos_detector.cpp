#include <algorithm>

#include "models/fcos/fcos.h"
#include "tasks/detect/dense_detector.h"
#include "tasks/detect/dense_losses.h"
#include "tasks/detect/dense_read.h"
#include "tasks/detect/fcos_targets.h"
#include "tasks/detect/losses.h"

namespace hearth::tasks {
namespace {

using ir::ValueId;
using nn::Builder;

/// Indices of the target arrays, which have an entry for every cell: the class (-1: none), the 4 edge
/// distances of the box, and the centerness (0 without a box).
struct CellInput {
  enum : size_t { labels, edges, centerness };
};
struct CellOutput {
  enum : size_t { logits, edges, centerness };
};

/// Converts edge distances [rows, 4] to boxes {center x, center y, width, height} relative to their cells, in
/// units of the level's stride.
ValueId boxes_of(Builder& builder, ValueId edges) {
  const ValueId before = columns(builder, edges, 0, 2), after = columns(builder, edges, 2, 2);
  const ValueId center = builder.op("scale", {builder.op("sub", {after, before})}, {{"factor", 0.5}});
  return builder.concat({center, builder.add(after, before)});
}

/// Returns 1 for each cell that has a box as its target, otherwise 0: [rows, 1].
ValueId cells_with_boxes(Builder& builder, ValueId labels, int64_t num_classes) {
  const Shape shape = builder.graph().type(labels).shape;
  const ValueId one_hot = builder.op("one_hot", {labels}, {{"classes", num_classes}});
  return sum_of_row(builder, reshaped(builder, one_hot, {shape.num_elements(), num_classes}));
}

class FcosObjective : public engine::Objective {
 public:
  explicit FcosObjective(DetectorOptions options) : options_(std::move(options)) {}

  Graph build(Builder& builder, engine::BatchShape shape) const override {
    const Extent size = input_size(options_, shape);
    const int64_t rows = shape.num_rows, cells = num_cells(pyramid_levels(size));
    const auto input = [&](const char* name, const Shape& axes, DType dtype = DType::f32) {
      return builder.input(name, {.dtype = dtype, .shape = axes});
    };
    Graph made{.inputs = {input("images", {rows, size.height, size.width, 3}),
                          input("labels", {rows, cells}, DType::i32), input("edges", {rows, cells, 4}),
                          input("centerness", {rows, cells})}};
    const models::FcosOutputs predicted =
        models::build_fcos(builder, made.inputs[0], backbone_options(options_), options_.num_classes);
    const TeacherLoss teacher = compare_classes(builder, options_.distill, predicted.logits, [&] {
      return models::build_fcos(builder, made.inputs[0], backbone_options(*options_.teacher),
                                options_.num_classes)
          .logits;
    });
    made.losses = losses(builder, predicted, teacher, std::span(made.inputs).subspan(1));
    if (builder.mode() == Builder::Mode::eval)
      made.outputs = {predicted.logits, predicted.edges, predicted.centerness};
    return made;
  }

 private:
  /// Returns the loss of each image [images], as defined by per_positive_anchor.
  ValueId losses(Builder& builder, const models::FcosOutputs& predicted, const TeacherLoss& teacher,
                 std::span<const ValueId> targets) const {
    const Shape shape = builder.graph().type(predicted.logits).shape;
    const int64_t images = shape[0], rows = shape[0] * shape[1];
    const ValueId has_box = cells_with_boxes(builder, targets[CellInput::labels], options_.num_classes);
    const ValueId giou = box_giou(builder, boxes_of(builder, reshaped(builder, predicted.edges, {rows, 4})),
                                  boxes_of(builder, reshaped(builder, targets[CellInput::edges], {rows, 4})));
    const ValueId of_box = builder.op("add_scalar", {builder.op("neg", {giou})}, {{"value", 1.0}});
    const ValueId of_center =
        binary_cross_entropy(builder, reshaped(builder, predicted.centerness, {rows, 1}),
                             reshaped(builder, targets[CellInput::centerness], {rows, 1}));
    const ValueId learned = builder.op("mul", {builder.add(of_box, of_center), has_box});
    const ValueId of_class =
        teacher.mix(builder, class_losses(builder, predicted.logits, targets[CellInput::labels]));
    const ValueId all = builder.add(of_class, learned);
    const ValueId sums = builder.op("sum_trailing", {reshaped(builder, all, {images, shape[1]})});
    return per_positive_anchor(builder, sums, has_box);
  }

  DetectorOptions options_;
};

class FcosDetector : public DenseDetector {
 public:
  using DenseDetector::DenseDetector;

  std::shared_ptr<const engine::Objective> objective() const override {
    return std::make_shared<FcosObjective>(options());
  }
  data::ArrayFormats target_formats(Extent size) const override {
    const auto floats = static_cast<int64_t>(sizeof(float)) * num_cells(pyramid_levels(size));
    return {{{"labels", floats}, {"edges", 4 * floats}, {"centerness", floats}}};
  }

  void write_targets(std::span<const data::Box> boxes, Extent size, bool,
                     std::span<std::byte* const> arrays) const override {
    auto* label = reinterpret_cast<int32_t*>(arrays[CellInput::labels]);
    auto* edge = reinterpret_cast<float*>(arrays[CellInput::edges]);
    auto* centerness = reinterpret_cast<float*>(arrays[CellInput::centerness]);
    for (const FcosTarget& target : fcos_targets(boxes, size)) {
      *label++ = target.box < 0 ? -1 : boxes[static_cast<size_t>(target.box)].label;
      for (const double one : target.edges) *edge++ = static_cast<float>(one);
      *centerness++ = static_cast<float>(target.centerness);
    }
  }

  std::vector<Detection> read(const engine::Engine& engine, int64_t row, Extent size,
                              double min_score) const override {
    const PyramidLevels levels = pyramid_levels(size);
    const int64_t cells = num_cells(levels);
    const float* edges = engine.output(CellOutput::edges).data() + row * cells * 4;
    const DensePredictions predictions{
        .levels = levels,
        .num_classes = options().num_classes,
        .logits = engine.output(CellOutput::logits).data() + row * cells * options().num_classes,
        .centerness = engine.output(CellOutput::centerness).data() + row * cells};
    std::vector<Detection> made;
    for (const Candidate& candidate : best_of_levels(predictions, min_score)) {
      const FcosCell cell = fcos_cell(levels, candidate.anchor);
      const auto edge = [&](int i) {
        return cell.side * static_cast<double>(edges[candidate.anchor * 4 + i]);
      };
      made.push_back(detection_at(candidate, cell.x - edge(0), cell.y - edge(1), cell.x + edge(2),
                                  cell.y + edge(3), size));
    }
    return made;
  }
};

}  // namespace

std::unique_ptr<Detector> open_fcos(const DetectorOptions& options) {
  return std::make_unique<FcosDetector>(options);
}

}  // namespace hearth::tasks
