#include "tasks/detect/dense_losses.h"

#include "tasks/detect/losses.h"

namespace hearth::tasks {

using ir::ValueId;
using nn::Builder;

ValueId class_losses(Builder& builder, ValueId logits, ValueId labels) {
  constexpr double kAlpha = 0.25, kGamma = 2;
  const Shape shape = builder.graph().type(logits).shape;
  const ValueId wanted = builder.op("one_hot", {labels}, {{"classes", shape[2]}});
  const ValueId losses = sigmoid_focal(builder, logits, wanted, kAlpha, kGamma);
  return sum_of_row(builder, reshaped(builder, losses, {shape[0] * shape[1], shape[2]}));
}

ValueId sum_per_image(Builder& builder, ValueId losses, ValueId weights, int64_t images) {
  const Shape by_image{images, builder.graph().type(losses).shape.num_elements() / images};
  const ValueId weighted =
      builder.op("mul", {reshaped(builder, losses, by_image), reshaped(builder, weights, by_image)});
  return builder.op("sum_trailing", {weighted});
}

}  // namespace hearth::tasks
