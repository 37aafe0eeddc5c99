// Fully convolutional networks for segmentation on a ResNet-50 of output stride 8, with the tensor names of
// torchvision's fcn_resnet50 and deeplabv3_resnet50: FCN (Long et al. 2015, arXiv 1411.4038) and DeepLabV3
// (Chen et al. 2017, arXiv 1706.05587). In training an auxiliary head on the third stage adds a loss.
#include "models/resnet/resnet.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using nn::Builder;

constexpr int64_t kAsppChannels = 256;
constexpr int64_t kAsppDilations[] = {12, 24, 36};

/// Adds a convolution `name`, a batch norm `norm` and relu.
ValueId block(Builder& builder, const std::string& name, const std::string& norm, ValueId in,
              const Builder::Conv& conv) {
  return builder.relu(builder.batch_norm(norm, builder.conv(name, in, conv)));
}

Builder::Conv one_by_one(int64_t channels, bool bias = false) {
  return {.out_channels = channels, .kernel = 1, .padding = 0, .bias = bias};
}

/// Adds FCN's head: a 3x3 convolution to a quarter of the channels, and a 1x1 convolution to logits per
/// class.
ValueId fcn_head(Builder& builder, const char* name, ValueId in, int64_t num_classes, bool drops) {
  const Builder::Scope scope(builder, name);
  const int64_t channels = builder.graph().type(in).shape.back() / 4;
  const ValueId x = block(builder, "0", "1", in, {.out_channels = channels});
  return builder.conv("4", builder.dropout("3", x, drops ? 0.1 : 0), one_by_one(num_classes, true));
}

/// Adds ASPP's global branch: the mean over all pixels, a 1x1 convolution, and the result repeated at every
/// pixel.
ValueId pooled(Builder& builder, ValueId in) {
  const Shape shape = builder.graph().type(in).shape;
  const ValueId mean = builder.op("reshape", {builder.global_avg_pool(in)},
                                  {{"shape", std::vector<int64_t>{shape[0], 1, 1, shape[3]}}});
  const ValueId x = block(builder, "convs.4.1", "convs.4.2", mean, one_by_one(kAsppChannels));
  return builder.resize(x, shape[1], shape[2], true);
}

/// Adds atrous spatial pyramid pooling (ASPP): concatenates convolutions of the same input with several
/// dilations.
ValueId aspp(Builder& builder, ValueId in, bool drops) {
  const Builder::Scope scope(builder, "0");
  std::vector<ValueId> seen = {block(builder, "convs.0.0", "convs.0.1", in, one_by_one(kAsppChannels))};
  for (const int64_t dilation : kAsppDilations) {
    const std::string name = "convs." + std::to_string(seen.size());
    seen.push_back(block(builder, name + ".0", name + ".1", in,
                         {.out_channels = kAsppChannels, .padding = dilation, .dilation = dilation}));
  }
  seen.push_back(pooled(builder, in));
  const ValueId x =
      block(builder, "project.0", "project.1", builder.concat(std::move(seen)), one_by_one(kAsppChannels));
  return builder.dropout("project.3", x, drops ? 0.5 : 0);
}

ValueId deeplab_head(Builder& builder, ValueId in, int64_t num_classes, bool drops) {
  const Builder::Scope scope(builder, "classifier");
  const ValueId x = block(builder, "1", "2", aspp(builder, in, drops), {.out_channels = kAsppChannels});
  return builder.conv("4", x, one_by_one(num_classes, true));
}

Outputs build(Builder& builder, ValueId images, const ModelOptions& options, bool deeplab) {
  ResNet net = kResNet50;
  net.num_dilated = 2;
  net.small_stem = false;
  if (options.width > 0) net.width = options.width;
  ResNetFeatures features;
  {
    const Builder::Scope scope(builder, "backbone");
    features = resnet_features(builder, images, net);
  }
  const bool drops = options.dropout > 0;
  const Shape shape = builder.graph().type(images).shape;
  const auto enlarged = [&](ValueId logits) { return builder.resize(logits, shape[1], shape[2], true); };
  const ValueId last = features.stages[3];
  Outputs made{enlarged(deeplab ? deeplab_head(builder, last, options.num_classes, drops)
                                : fcn_head(builder, "classifier", last, options.num_classes, drops))};
  if (builder.mode() == Builder::Mode::train)
    made.auxiliary =
        enlarged(fcn_head(builder, "aux_classifier", features.stages[2], options.num_classes, drops));
  return made;
}

}  // namespace

Outputs build_fcn_resnet50(Builder& builder, ValueId images, const ModelOptions& options) {
  return build(builder, images, options, false);
}
Outputs build_deeplabv3_resnet50(Builder& builder, ValueId images, const ModelOptions& options) {
  return build(builder, images, options, true);
}

}  // namespace hearth::models
