// U-Net (Ronneberger et al. 2015, arXiv 1505.04597): an encoder that halves height and width several times, a
// decoder that doubles them again, and at every size a skip connection from encoder to decoder. Unlike in the
// paper, convolutions are padded, so that the output has the size of the image, and have batch norms.
#include <vector>

#include "models/resnet/resnet.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using nn::Builder;

constexpr int64_t kWidth = 32;
constexpr int kLevels = 4;

ValueId conv_norm_relu(Builder& builder, const std::string& number, ValueId in, int64_t channels) {
  const ValueId x = builder.conv("conv" + number, in, {.out_channels = channels, .kaiming_fan_out = true});
  return builder.relu(builder.batch_norm("bn" + number, x));
}

ValueId two_convs(Builder& builder, const std::string& name, ValueId in, int64_t channels) {
  const Builder::Scope scope(builder, name);
  return conv_norm_relu(builder, "2", conv_norm_relu(builder, "1", in, channels), channels);
}

ValueId resize_like(Builder& builder, ValueId in, ValueId like, bool linear) {
  const Shape shape = builder.graph().type(like).shape;
  const Shape now = builder.graph().type(in).shape;
  if (now[1] == shape[1] && now[2] == shape[2]) return in;
  return builder.resize(in, shape[1], shape[2], linear);
}

/// Decoder: upsamples `x` to the size of each of `skips` (encoder outputs, largest last) and concatenates
/// both. `channels`: number of channels after each step.
ValueId decode(Builder& builder, ValueId x, const std::vector<ValueId>& skips,
               const std::vector<int64_t>& channels) {
  for (size_t i = 0; i < skips.size(); ++i) {
    x = builder.concat({skips[i], resize_like(builder, x, skips[i], true)});
    x = two_convs(builder, "up" + std::to_string(i + 1), x, channels[i]);
  }
  return x;
}

ValueId to_classes(Builder& builder, ValueId in, const ModelOptions& options) {
  return builder.conv("head", in,
                      {.out_channels = options.num_classes, .kernel = 1, .padding = 0, .bias = true});
}

Outputs with_encoder(Builder& builder, ValueId images, const ModelOptions& options, ResNet net) {
  if (options.width > 0) net.width = options.width;
  ResNetFeatures features;
  {
    const Builder::Scope scope(builder, "encoder");
    features = resnet_features(builder, images, net);
  }
  const auto& stages = features.stages;
  const int64_t width = 2 * net.width;
  ValueId x = decode(builder, stages[3], {stages[2], stages[1], stages[0], features.stem},
                     {2 * width, width, width / 2, width / 4});
  x = two_convs(builder, "up5", resize_like(builder, x, images, true), width / 8);
  return {to_classes(builder, x, options)};
}

}  // namespace

Outputs build_unet(Builder& builder, ValueId images, const ModelOptions& options) {
  const int64_t width = options.width > 0 ? options.width : kWidth;
  std::vector<ValueId> skips;
  std::vector<int64_t> channels;
  ValueId x = two_convs(builder, "down0", images, width);
  for (int level = 1; level <= kLevels; ++level) {
    const Shape& shape = builder.graph().type(x).shape;
    if (std::min(shape[1], shape[2]) < 2) break;
    skips.insert(skips.begin(), x);
    channels.insert(channels.begin(), width << (level - 1));
    x = two_convs(builder, "down" + std::to_string(level), builder.max_pool(x, 2, 2), width << level);
  }
  return {to_classes(builder, decode(builder, x, skips, channels), options)};
}

Outputs build_unet_resnet18(Builder& builder, ValueId images, const ModelOptions& options) {
  return with_encoder(builder, images, options, kResNet18);
}
Outputs build_unet_resnet34(Builder& builder, ValueId images, const ModelOptions& options) {
  return with_encoder(builder, images, options, kResNet34);
}
Outputs build_unet_resnet50(Builder& builder, ValueId images, const ModelOptions& options) {
  return with_encoder(builder, images, options, kResNet50);
}

}  // namespace hearth::models
