#include "tasks/segment/segmenter.h"

#include <optional>

#include "base/error.h"
#include "tasks/image_teacher.h"

namespace hearth::tasks {
namespace {

using ir::ValueId;
using nn::Builder;

/// Weight of the auxiliary head's loss, as in torchvision's recipes.
constexpr double kAuxiliaryWeight = 0.5;
/// Label of pixels without a class.
constexpr int64_t kIgnored = -1;
/// Added to the number of labeled pixels to prevent division by 0. A micro-batch without labeled pixels has
/// loss 0.
constexpr double kTiny = 1e-9;

std::vector<int64_t> axes(std::initializer_list<int64_t> list) { return list; }

class Segmenter : public engine::Objective {
 public:
  explicit Segmenter(SegmenterOptions options) : options_(std::move(options)) {}

  Graph build(Builder& builder, engine::BatchShape shape) const override {
    const models::ModelOptions& model = options_.model;
    const Extent size = model.image_size;
    const int64_t rows = shape.num_rows;
    const ValueId images = builder.input(
        "images", {.dtype = DType::f32, .shape = {rows, size.height, size.width, model.channels}});
    const ValueId masks =
        builder.input("masks", {.dtype = DType::i32, .shape = {rows, size.height, size.width}});
    const ValueId weight = builder.input("weight", {.dtype = DType::f32, .shape = {rows}});
    Graph result{.inputs = {images, masks, weight}};
    ValueId class_weights = ir::kNone;
    if (options_.has_class_weights) {
      class_weights = builder.input("class_weights", {.dtype = DType::f32, .shape = {model.num_classes}});
      result.inputs.push_back(class_weights);
    }
    const models::Outputs made = models::find_model(model.name).build(builder, images, model);
    const Pixels pixels{
        .rows = rows,
        .count = size.num_pixels(),
        .num_classes = model.num_classes,
        .labels = builder.op("reshape", {masks}, {{"shape", axes({rows * size.num_pixels()})}}),
        .weight = weight,
        .class_weights = class_weights};
    result.losses =
        teacher_loss(builder, images, made.logits, pixels).mix(builder, loss(builder, made.logits, pixels));
    if (made.auxiliary != ir::kNone) {
      const ValueId auxiliary =
          builder.op("scale", {loss(builder, made.auxiliary, pixels)}, {{"factor", kAuxiliaryWeight}});
      result.losses = builder.add(result.losses, auxiliary);
    }
    if (builder.mode() == Builder::Mode::train) return result;
    result.exported = {{"logits", made.logits}};
    result.outputs = {builder.op("argmax", {made.logits})};
    if (options_.outputs_probabilities) result.outputs.push_back(builder.op("softmax", {made.logits}));
    return result;
  }

 private:
  /// Labels and loss weights of the pixels of a micro-batch. flat() reshapes logits to one row per pixel.
  struct Pixels {
    int64_t rows, count, num_classes;
    ValueId labels, weight;
    ValueId class_weights;  ///< loss weight of each class; kNone: no weights

    ValueId flat(Builder& builder, ValueId logits) const {
      return builder.op("reshape", {logits}, {{"shape", axes({rows * count, num_classes})}});
    }
  };

  /// Compares the logits of labeled pixels. Divides the sum by the same weight as that of cross-entropies.
  TeacherLoss teacher_loss(Builder& builder, ValueId images, ValueId logits, const Pixels& pixels) const {
    if (!options_.teacher || builder.mode() == Builder::Mode::eval) return {};
    const Builder::TeacherScope scope(builder);
    const models::ModelOptions& model = *options_.teacher;
    const ValueId teacher = models::find_model(model.name).build(builder, images, model).logits;
    TeacherLoss made =
        compare_with_teacher(builder, options_.distill, pixels.flat(builder, logits),
                             pixels.flat(builder, teacher), {{"ignore", kIgnored}}, pixels.labels);
    made.divergence = mean_over_pixels(builder, made.divergence, pixels);
    return made;
  }

  ValueId loss(Builder& builder, ValueId logits, const Pixels& pixels) const {
    std::optional<ValueId> sum;
    for (const MaskLoss kind : options_.losses) {
      const ValueId one =
          kind == MaskLoss::dice
              ? dice(builder, logits, pixels)
              : mean_over_pixels(builder, pixel_losses(builder, logits, pixels, kind), pixels);
      sum = sum ? builder.add(*sum, one) : one;
    }
    HEARTH_CHECK(sum.has_value());
    return *sum;
  }

  static ValueId cross_entropy(Builder& builder, ValueId flat, const Pixels& pixels, bool weighted) {
    std::vector<ValueId> inputs = {flat, pixels.labels};
    if (weighted && pixels.class_weights != ir::kNone) inputs.push_back(pixels.class_weights);
    return builder.op("softmax_cross_entropy", inputs, {{"smoothing", 0.0}, {"ignore", kIgnored}});
  }

  /// Returns the loss of each pixel.
  static ValueId pixel_losses(Builder& builder, ValueId logits, const Pixels& pixels, MaskLoss kind) {
    const ValueId flat = pixels.flat(builder, logits);
    ValueId losses = cross_entropy(builder, flat, pixels, true);
    if (kind == MaskLoss::focal) {
      const ValueId plain =
          pixels.class_weights == ir::kNone ? losses : cross_entropy(builder, flat, pixels, false);
      const ValueId right = builder.op("exp", {builder.op("neg", {plain})});
      const ValueId wrong = builder.op("add_scalar", {builder.op("neg", {right})}, {{"value", 1.0}});
      losses = builder.op("mul", {losses, builder.op("square", {wrong})});
    }
    return losses;
  }

  /// Returns the sum of losses over the pixels of each image, scaled so that the mean over the images of a
  /// micro-batch is the mean over its labeled pixels, weighted by class.
  static ValueId mean_over_pixels(Builder& builder, ValueId losses, const Pixels& pixels) {
    const ValueId sums = builder.op(
        "sum_trailing", {builder.op("reshape", {losses}, {{"shape", axes({pixels.rows, pixels.count})}})});
    const ValueId total =
        builder.op("add_scalar", {builder.op("sum_all", {pixels.weight})}, {{"value", kTiny}});
    const ValueId share = builder.op("scale", {builder.op("reciprocal", {total})},
                                     {{"factor", static_cast<double>(pixels.rows)}});
    return builder.op("scale_by", {sums, share});
  }

  /// Returns the dice loss of the micro-batch, repeated for each row.
  static ValueId dice(Builder& builder, ValueId logits, const Pixels& pixels) {
    const ValueId truth = builder.op("one_hot", {pixels.labels}, {{"classes", pixels.num_classes}});
    const ValueId is_labeled = builder.op("row_dot", {truth, truth});
    const ValueId predicted =
        builder.op("scale_rows", {builder.op("softmax", {pixels.flat(builder, logits)}), is_labeled});
    const auto over_pixels = [&](ValueId value) { return builder.op("sum_leading", {value}); };
    const auto plus_one = [&](ValueId value) { return builder.op("add_scalar", {value}, {{"value", 1.0}}); };
    const ValueId both = over_pixels(builder.op("mul", {predicted, truth}));
    const ValueId above = plus_one(builder.op("scale", {both}, {{"factor", 2.0}}));
    const ValueId below = plus_one(builder.add(over_pixels(predicted), over_pixels(truth)));
    const ValueId mean = builder.op("scale", {builder.op("sum_all", {builder.op("div", {above, below})})},
                                    {{"factor", -1.0 / static_cast<double>(pixels.num_classes)}});
    return builder.op("broadcast_scalar", {plus_one(mean)}, {{"shape", axes({pixels.rows})}});
  }

  SegmenterOptions options_;
};

}  // namespace

std::shared_ptr<const engine::Objective> segmenter(SegmenterOptions options) {
  return std::make_shared<Segmenter>(std::move(options));
}

}  // namespace hearth::tasks
