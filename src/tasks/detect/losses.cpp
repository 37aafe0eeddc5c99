#include "tasks/detect/losses.h"

namespace hearth::tasks {
namespace {

using ir::ValueId;
using nn::Builder;

constexpr double kTiny = 1e-16;  ///< prevents division by 0

ValueId scaled(Builder& builder, ValueId in, double factor) {
  return builder.op("scale", {in}, {{"factor", factor}});
}
ValueId plus(Builder& builder, ValueId in, double value) {
  return builder.op("add_scalar", {in}, {{"value", value}});
}

/// Upper left (`low`) and lower right (`high`) corners of boxes, [..., 2] each.
struct Edges {
  ValueId low, high;

  Edges(Builder& builder, ValueId boxes) {
    const ValueId center = columns(builder, boxes, 0, 2);
    const ValueId half = scaled(builder, columns(builder, boxes, 2, 2), 0.5);
    low = builder.op("sub", {center, half});
    high = builder.add(center, half);
  }
};

/// Returns the product of two sides: [..., 2] -> [..., 1].
ValueId area(Builder& builder, ValueId sides) {
  return builder.op("mul", {columns(builder, sides, 0, 1), columns(builder, sides, 1, 1)});
}
/// Returns width and height of the rectangle between two corners; 0 along axes where `high` is less than
/// `low`.
ValueId sides(Builder& builder, ValueId low, ValueId high) {
  return builder.relu(builder.op("sub", {high, low}));
}

struct Overlap {
  ValueId united, iou;

  Overlap(Builder& builder, ValueId a, ValueId b, const Edges& of_a, const Edges& of_b) {
    const ValueId common = area(builder, sides(builder, builder.op("maximum", {of_a.low, of_b.low}),
                                               builder.op("minimum", {of_a.high, of_b.high})));
    const ValueId both =
        builder.add(area(builder, columns(builder, a, 2, 2)), area(builder, columns(builder, b, 2, 2)));
    united = plus(builder, builder.op("sub", {both, common}), kTiny);
    iou = builder.op("div", {common, united});
  }
};

}  // namespace

ValueId reshaped(Builder& builder, ValueId values, const Shape& shape) {
  return builder.op("reshape", {values}, {{"shape", std::vector<int64_t>(shape.begin(), shape.end())}});
}

ValueId columns(Builder& builder, ValueId values, int64_t begin, int64_t count) {
  return builder.op("slice_last", {values}, {{"begin", begin}, {"count", count}});
}

ValueId box_iou(Builder& builder, ValueId a, ValueId b) {
  return Overlap(builder, a, b, Edges(builder, a), Edges(builder, b)).iou;
}

ValueId box_giou(Builder& builder, ValueId a, ValueId b) {
  const Edges of_a(builder, a), of_b(builder, b);
  const Overlap overlap(builder, a, b, of_a, of_b);
  const ValueId around = plus(builder,
                              area(builder, sides(builder, builder.op("minimum", {of_a.low, of_b.low}),
                                                  builder.op("maximum", {of_a.high, of_b.high}))),
                              kTiny);
  // Computes iou - (around - united) / around as iou + united / around - 1.
  const ValueId filled = builder.op("div", {overlap.united, around});
  return plus(builder, builder.add(overlap.iou, filled), -1);
}

ValueId binary_cross_entropy(Builder& builder, ValueId logits, ValueId targets) {
  return builder.op("sub", {builder.op("softplus", {logits}), builder.op("mul", {logits, targets})});
}

ValueId sigmoid_focal(Builder& builder, ValueId logits, ValueId targets, double alpha, double gamma) {
  // Let z be the logit of the wrong answer, and p the probability of the right one. The cross-entropy is
  // softplus(z), and log(1 - p) is -softplus(-z).
  const ValueId sign = plus(builder, scaled(builder, targets, -2), 1);
  const ValueId wrong = builder.op("mul", {logits, sign});
  const ValueId log_wrong = builder.op("softplus", {scaled(builder, wrong, -1)});
  const ValueId focus = builder.op("exp", {scaled(builder, log_wrong, -gamma)});
  const ValueId weight = plus(builder, scaled(builder, targets, 2 * alpha - 1), 1 - alpha);
  return builder.op("mul", {builder.op("mul", {weight, focus}), builder.op("softplus", {wrong})});
}

ValueId sum_of_row(Builder& builder, ValueId values) {
  const int64_t rows = builder.graph().type(values).shape[0];
  return reshaped(builder, builder.op("sum_trailing", {values}), {rows, 1});
}

TeacherLoss compare_classes(Builder& builder, const recipe::Distill& distill, ValueId logits,
                            FunctionRef<ValueId()> build_teacher) {
  if (distill.from.empty() || builder.mode() == Builder::Mode::eval) return {};
  const Builder::TeacherScope scope(builder);
  const Shape shape = builder.graph().type(logits).shape;
  const Shape rows{shape.num_elements() / shape.back(), shape.back()};
  return compare_with_teacher(builder, distill, reshaped(builder, logits, rows),
                              reshaped(builder, build_teacher(), rows), {{"sigmoid", int64_t{1}}});
}

ValueId per_positive_anchor(Builder& builder, ValueId sums, ValueId is_positive) {
  const ValueId more = builder.relu(plus(builder, builder.op("sum_all", {is_positive}), -1));
  const auto images = static_cast<double>(builder.graph().type(sums).shape[0]);
  const ValueId share = scaled(builder, builder.op("reciprocal", {plus(builder, more, 1)}), images);
  return builder.op("scale_by", {sums, share});
}

}  // namespace hearth::tasks
