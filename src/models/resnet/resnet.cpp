#include "models/resnet/resnet.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using nn::Builder;

ValueId conv_norm(Builder& builder, const std::string& suffix, ValueId in, const Builder::Conv& conv,
                  bool frozen) {
  return builder.batch_norm("bn" + suffix, builder.conv("conv" + suffix, in, conv), {.frozen = frozen});
}

ValueId shortcut(Builder& builder, ValueId in, int64_t channels, int64_t stride, bool frozen) {
  if (stride == 1 && builder.graph().type(in).shape.back() == channels) return in;
  const Builder::Scope scope(builder, "downsample");
  const ValueId projected = builder.conv(
      "0", in,
      {.out_channels = channels, .kernel = 1, .stride = stride, .padding = 0, .kaiming_fan_out = true});
  return builder.batch_norm("1", projected, {.frozen = frozen});
}

struct Block {
  int64_t width, stride, dilation;
  bool frozen;

  Builder::Conv conv3(int64_t of_stride) const {
    return {.out_channels = width,
            .stride = of_stride,
            .padding = dilation,
            .kaiming_fan_out = true,
            .dilation = dilation};
  }
};

ValueId basic_block(Builder& builder, ValueId in, const Block& block) {
  ValueId x = conv_norm(builder, "1", in, block.conv3(block.stride), block.frozen);
  x = conv_norm(builder, "2", builder.relu(x), block.conv3(1), block.frozen);
  return builder.relu(builder.add(x, shortcut(builder, in, block.width, block.stride, block.frozen)));
}

ValueId bottleneck_block(Builder& builder, ValueId in, const Block& block) {
  const int64_t wide = 4 * block.width;
  const Builder::Conv squeeze{
      .out_channels = block.width, .kernel = 1, .padding = 0, .kaiming_fan_out = true};
  const Builder::Conv widen{.out_channels = wide, .kernel = 1, .padding = 0, .kaiming_fan_out = true};
  ValueId x = builder.relu(conv_norm(builder, "1", in, squeeze, block.frozen));
  x = builder.relu(conv_norm(builder, "2", x, block.conv3(block.stride), block.frozen));
  x = conv_norm(builder, "3", x, widen, block.frozen);
  return builder.relu(builder.add(x, shortcut(builder, in, wide, block.stride, block.frozen)));
}

bool is_small(Builder& builder, ValueId images, const ResNet& net) {
  return net.small_stem && are_small(builder.graph().type(images).shape);
}

ValueId stem(Builder& builder, ValueId images, const ResNet& net, bool small) {
  const Builder::Conv conv{.out_channels = net.width,
                           .kernel = small ? 3 : 7,
                           .stride = small ? 1 : 2,
                           .padding = small ? 1 : 3,
                           .kaiming_fan_out = true};
  return builder.relu(conv_norm(builder, "1", images, conv, net.frozen_norm));
}

Outputs classify(Builder& builder, ValueId images, const ModelOptions& options, ResNet net) {
  if (options.width > 0) net.width = options.width;
  const ValueId x = resnet_features(builder, images, net).stages.back();
  return {builder.linear("fc", builder.global_avg_pool(x), options.num_classes)};
}

}  // namespace

ResNetFeatures resnet_features(Builder& builder, ValueId images, const ResNet& net) {
  const bool small = is_small(builder, images, net);
  ResNetFeatures made{.stem = stem(builder, images, net, small)};
  ValueId x = small ? made.stem : builder.max_pool(made.stem, 3, 2, 1);
  int64_t dilation = 1;
  for (size_t stage = 0; stage < net.blocks.size(); ++stage) {
    const bool dilates = static_cast<int>(stage) + net.num_dilated >= std::ssize(net.blocks);
    const int64_t before = dilation;
    if (dilates) dilation *= 2;
    for (int block = 0; block < net.blocks[stage]; ++block) {
      const Builder::Scope scope(builder, "layer" + std::to_string(stage + 1) + "." + std::to_string(block));
      const bool first = block == 0;
      const Block shape{.width = net.width << stage,
                        .stride = stage > 0 && first && !dilates ? 2 : 1,
                        .dilation = first ? before : dilation,
                        .frozen = net.frozen_norm};
      x = net.bottleneck ? bottleneck_block(builder, x, shape) : basic_block(builder, x, shape);
    }
    made.stages[stage] = x;
  }
  return made;
}

Outputs build_resnet18(Builder& builder, ValueId images, const ModelOptions& options) {
  return classify(builder, images, options, kResNet18);
}
Outputs build_resnet34(Builder& builder, ValueId images, const ModelOptions& options) {
  return classify(builder, images, options, kResNet34);
}
Outputs build_resnet50(Builder& builder, ValueId images, const ModelOptions& options) {
  return classify(builder, images, options, kResNet50);
}

}  // namespace hearth::models
