#include "models/fcos/fcos.h"

#include "base/error.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using nn::Builder;

constexpr int64_t kGroups = 32;

/// Adds four 3x3 convolutions, each with group norm and relu, named by their index in torch's Sequential.
ValueId tower(Builder& builder, ValueId x) {
  const int64_t channels = builder.graph().type(x).shape.back();
  for (int i = 0; i < 4; ++i) {
    const std::string conv = "conv." + std::to_string(3 * i), norm = "conv." + std::to_string(3 * i + 1);
    x = builder.conv(conv, x, {.out_channels = channels, .bias = true, .normal = head_deviation(channels)});
    x = builder.relu(builder.group_norm(norm, x, kGroups));
  }
  return x;
}

}  // namespace

FcosOutputs build_fcos(Builder& builder, ValueId images, const PyramidOptions& options, int64_t num_classes) {
  if (4 * options.width % kGroups != 0)
    user_error("model.width of FCOS must be a multiple of 8, got {}", options.width);
  const Pyramid pyramid = build_resnet50_fpn(builder, images, options);
  const Builder::Scope scope(builder, "head");
  std::vector<ValueId> logits, edges, centerness;
  for (const ValueId level : pyramid) {
    {
      const Builder::Scope inner(builder, "classification_head");
      logits.push_back(predict(builder, "cls_logits", tower(builder, level), num_classes, rare_class_bias()));
    }
    const Builder::Scope inner(builder, "regression_head");
    const ValueId x = tower(builder, level);
    edges.push_back(builder.relu(predict(builder, "bbox_reg", x, 4)));
    centerness.push_back(predict(builder, "bbox_ctrness", x, 1));
  }
  return {.logits = join_levels(builder, logits, num_classes),
          .edges = join_levels(builder, edges, 4),
          .centerness = join_levels(builder, centerness, 1)};
}

}  // namespace hearth::models
