#include "models/retinanet/retinanet.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using nn::Builder;

/// Adds four 3x3 convolutions, each with a relu, and the final convolution `last`, which predicts `values`
/// numbers per anchor.
ValueId head(Builder& builder, const char* name, const char* last, ValueId x, int64_t values, double bias) {
  const Builder::Scope scope(builder, name);
  const int64_t channels = builder.graph().type(x).shape.back();
  for (int i = 0; i < 4; ++i) {
    x = builder.relu(
        builder.conv("conv." + std::to_string(i) + ".0", x,
                     {.out_channels = channels, .bias = true, .normal = head_deviation(channels)}));
  }
  return predict(builder, last, x, kRetinanetAnchors * values, bias);
}

}  // namespace

RetinanetOutputs build_retinanet(Builder& builder, ValueId images, const PyramidOptions& options,
                                 int64_t num_classes) {
  const Pyramid pyramid = build_resnet50_fpn(builder, images, options);
  const Builder::Scope scope(builder, "head");
  std::vector<ValueId> logits, boxes;
  for (const ValueId level : pyramid) {
    logits.push_back(
        head(builder, "classification_head", "cls_logits", level, num_classes, rare_class_bias()));
    boxes.push_back(head(builder, "regression_head", "bbox_reg", level, 4, 0));
  }
  return {.logits = join_levels(builder, logits, num_classes), .boxes = join_levels(builder, boxes, 4)};
}

}  // namespace hearth::models
