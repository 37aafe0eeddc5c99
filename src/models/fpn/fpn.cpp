#include "models/fpn/fpn.h"

#include <cmath>

#include "base/error.h"
#include "models/resnet/resnet.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using nn::Builder;

/// Adds a convolution of the pyramid, initialized with bias 0 and weights of standard deviation 1 /
/// sqrt(fan-in).
ValueId even_conv(Builder& builder, std::string_view name, ValueId in, const Builder::Conv& options) {
  Builder::Conv conv = options;
  const int64_t fan_in = conv.kernel * conv.kernel * builder.graph().type(in).shape.back();
  conv.normal = 1 / std::sqrt(static_cast<double>(fan_in));
  conv.bias = true;
  return builder.conv(name, in, conv);
}

}  // namespace

Pyramid build_resnet50_fpn(Builder& builder, ValueId images, const PyramidOptions& options) {
  const Shape image_shape = builder.graph().type(images).shape;
  if (image_shape[1] % 32 != 0 || image_shape[2] % 32 != 0)
    user_error("expected images with sides that are multiples of 32, got {} x {}", image_shape[1],
               image_shape[2]);
  ResNet body = kResNet50;
  body.width = options.width;
  body.small_stem = false;
  body.frozen_norm = options.frozen_norm;
  const int64_t channels = 4 * options.width;
  ResNetFeatures features;
  {
    const Builder::Scope scope(builder, "backbone.body");
    features = resnet_features(builder, images, body);
  }
  const Builder::Scope scope(builder, "backbone.fpn");
  Pyramid made{};
  ValueId above = ir::kNone;
  for (size_t level = 3; level-- > 0;) {
    const std::string number = std::to_string(level);
    ValueId x = even_conv(builder, "inner_blocks." + number + ".0", features.stages[level + 1],
                          {.out_channels = channels, .kernel = 1, .padding = 0});
    if (above != ir::kNone) {
      const Shape shape = builder.graph().type(x).shape;
      x = builder.add(x, builder.resize(above, shape[1], shape[2], false));
    }
    made[level] = even_conv(builder, "layer_blocks." + number + ".0", x, {.out_channels = channels});
    above = x;
  }
  const Builder::Conv halving{.out_channels = channels, .stride = 2};
  made[3] = even_conv(builder, "extra_blocks.p6", made[2], halving);
  made[4] = even_conv(builder, "extra_blocks.p7", builder.relu(made[3]), halving);
  return made;
}

double head_deviation(int64_t channels) { return 0.01 * std::sqrt(256.0 / static_cast<double>(channels)); }

double rare_class_bias() {
  constexpr double kPrior = 0.01;
  return -std::log((1 - kPrior) / kPrior);
}

ValueId predict(Builder& builder, std::string_view name, ValueId in, int64_t channels, double bias) {
  return builder.conv(name, in,
                      {.out_channels = channels,
                       .bias = true,
                       .normal = head_deviation(builder.graph().type(in).shape.back()),
                       .bias_init = bias});
}

ValueId join_levels(Builder& builder, std::span<const ValueId> levels, int64_t values) {
  std::vector<ValueId> flat;
  flat.reserve(levels.size());
  for (const ValueId level : levels) flat.push_back(builder.flatten(level));
  const ValueId all = builder.op("cast", {builder.concat(flat)}, {{"dtype", std::string("f32")}});
  const Shape shape = builder.graph().type(all).shape;
  return builder.op("reshape", {all}, {{"shape", std::vector<int64_t>{shape[0], shape[1] / values, values}}});
}

}  // namespace hearth::models
