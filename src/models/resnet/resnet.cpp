#include <algorithm>
#include <array>

#include "models/model.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using nn::Builder;

struct ResNet {
  std::array<int, 4> blocks;
  bool bottleneck = false;
};

ValueId conv_norm(Builder& builder, const std::string& suffix, ValueId in, const Builder::Conv& conv) {
  return builder.batch_norm("bn" + suffix, builder.conv("conv" + suffix, in, conv));
}

ValueId shortcut(Builder& builder, ValueId in, int64_t channels, int64_t stride) {
  if (stride == 1 && builder.graph().type(in).shape.back() == channels) return in;
  const Builder::Scope scope(builder, "downsample");
  const ValueId projected = builder.conv(
      "0", in,
      {.out_channels = channels, .kernel = 1, .stride = stride, .padding = 0, .kaiming_fan_out = true});
  return builder.batch_norm("1", projected);
}

ValueId basic_block(Builder& builder, ValueId in, int64_t width, int64_t stride) {
  ValueId x = conv_norm(builder, "1", in, {.out_channels = width, .stride = stride, .kaiming_fan_out = true});
  x = conv_norm(builder, "2", builder.relu(x), {.out_channels = width, .kaiming_fan_out = true});
  return builder.relu(builder.add(x, shortcut(builder, in, width, stride)));
}

ValueId bottleneck_block(Builder& builder, ValueId in, int64_t width, int64_t stride) {
  const Builder::Conv narrow{.out_channels = width, .kernel = 1, .padding = 0, .kaiming_fan_out = true};
  const Builder::Conv wide{.out_channels = 4 * width, .kernel = 1, .padding = 0, .kaiming_fan_out = true};
  ValueId x = builder.relu(conv_norm(builder, "1", in, narrow));
  x = builder.relu(
      conv_norm(builder, "2", x, {.out_channels = width, .stride = stride, .kaiming_fan_out = true}));
  x = conv_norm(builder, "3", x, wide);
  return builder.relu(builder.add(x, shortcut(builder, in, 4 * width, stride)));
}

ValueId stem(Builder& builder, ValueId images, int64_t width) {
  const Shape& shape = builder.graph().type(images).shape;
  const bool small = std::min(shape[1], shape[2]) < 64;
  const Builder::Conv conv{.out_channels = width,
                           .kernel = small ? 3 : 7,
                           .stride = small ? 1 : 2,
                           .padding = small ? 1 : 3,
                           .kaiming_fan_out = true};
  const ValueId x = builder.relu(conv_norm(builder, "1", images, conv));
  return small ? x : builder.max_pool(x, 3, 2, 1);
}

ValueId build(Builder& builder, ValueId images, const ModelOptions& options, const ResNet& net) {
  ValueId x = stem(builder, images, options.width);
  for (size_t stage = 0; stage < net.blocks.size(); ++stage) {
    for (int block = 0; block < net.blocks[stage]; ++block) {
      const Builder::Scope scope(builder, "layer" + std::to_string(stage + 1) + "." + std::to_string(block));
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      const int64_t width = options.width << stage;
      x = net.bottleneck ? bottleneck_block(builder, x, width, stride)
                         : basic_block(builder, x, width, stride);
    }
  }
  return builder.linear("fc", builder.global_avg_pool(x), options.num_classes);
}

}  // namespace

ValueId build_resnet18(Builder& builder, ValueId images, const ModelOptions& options) {
  return build(builder, images, options, {.blocks = {2, 2, 2, 2}});
}
ValueId build_resnet34(Builder& builder, ValueId images, const ModelOptions& options) {
  return build(builder, images, options, {.blocks = {3, 4, 6, 3}});
}
ValueId build_resnet50(Builder& builder, ValueId images, const ModelOptions& options) {
  return build(builder, images, options, {.blocks = {3, 4, 6, 3}, .bottleneck = true});
}

}  // namespace hearth::models
