#include "tasks/classify/classifier.h"

#include "ops/op_list.h"
#include "tasks/image_teacher.h"

namespace hearth::tasks {
namespace {

using ir::ValueId;

class Classifier : public engine::Objective {
 public:
  explicit Classifier(ClassifierOptions options) : options_(std::move(options)) {}

  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    const models::ModelOptions& model = options_.model;
    const Shape image_shape{shape.num_rows, model.image_size.height, model.image_size.width, model.channels};
    const ValueId images = builder.input("images", {.dtype = DType::f32, .shape = image_shape});
    const ValueId labels = builder.input("labels", {.dtype = DType::i32, .shape = {shape.num_rows}});
    const ValueId logits = options_.build_model
                               ? options_.build_model(builder, images)
                               : models::find_model(model.name).build(builder, images, model).logits;
    const bool training = builder.mode() == nn::Builder::Mode::train;
    ir::Graph& graph = builder.graph();
    const auto add = [&](std::string_view op, std::vector<ValueId> inputs, ir::Attrs attrs,
                         const char* name) {
      return graph.add1(*ops::find_op(op), std::move(inputs), std::move(attrs), name);
    };
    Graph result{.inputs = {images, labels}};
    result.losses = add("softmax_cross_entropy", {logits, labels},
                        {{"smoothing", training ? options_.label_smoothing : 0.0}}, "loss");
    if (training) {
      result.losses = teacher_loss(builder, images, logits).mix(builder, result.losses);
      return result;
    }
    result.outputs = {add("count_correct", {logits, labels}, {}, "correct"),
                      add("softmax", {logits}, {}, "probabilities")};
    result.exported = {{"logits", logits}};
    return result;
  }

 private:
  TeacherLoss teacher_loss(nn::Builder& builder, ValueId images, ValueId logits) const {
    if (!options_.teacher) return {};
    const nn::Builder::TeacherScope scope(builder);
    const models::ModelOptions& teacher = *options_.teacher;
    return compare_with_teacher(builder, options_.distill, logits,
                                models::find_model(teacher.name).build(builder, images, teacher).logits);
  }

  ClassifierOptions options_;
};

}  // namespace

std::shared_ptr<const engine::Objective> classifier(ClassifierOptions options) {
  return std::make_shared<Classifier>(std::move(options));
}

}  // namespace hearth::tasks
