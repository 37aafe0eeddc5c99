// EfficientNet-B0 (Tan and Le 2019, arXiv 1905.11946) with torchvision's names. Stochastic depth is not
// implemented (probability 0).
#include <algorithm>
#include <array>
#include <string>

#include "models/mobilenet/inverted_residual.h"
#include "models/model.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using nn::Builder;

constexpr int64_t kStem = 32;

struct Stage {
  int64_t widening, kernel, stride, out;
  int blocks;
};
constexpr auto kStages = std::to_array<Stage>({{1, 3, 1, 16, 1},
                                               {6, 3, 2, 24, 2},
                                               {6, 5, 2, 40, 2},
                                               {6, 3, 2, 80, 3},
                                               {6, 5, 1, 112, 3},
                                               {6, 5, 2, 192, 4},
                                               {6, 3, 1, 320, 1}});

ValueId features(Builder& builder, ValueId images, double scale) {
  const Builder::Scope scope(builder, "features");
  const ConvNorm conv{.activation = "silu"};
  Strides strides(builder, images);
  int64_t before = round_channels(kStem * scale);
  ValueId x = conv(builder, "0", images, {.out_channels = before, .stride = strides.next(2)});
  int number = 1;
  for (const Stage& stage : kStages) {
    const int64_t out = round_channels(static_cast<double>(stage.out) * scale);
    for (int block = 0; block < stage.blocks; ++block) {
      const Builder::Scope inner(builder, std::to_string(number) + "." + std::to_string(block));
      const int64_t stride = block == 0 ? stage.stride : 1;
      x = InvertedResidual{.kernel = stage.kernel,
                           .stride = strides.next(stride),
                           .wide = round_channels(static_cast<double>(before * stage.widening)),
                           .out = out,
                           .squeezed = std::max<int64_t>(1, before / 4),
                           .activation = "silu",
                           .squeeze_activation = "silu",
                           .gate = "sigmoid",
                           .adds_input = stride == 1 && before == out}(builder, x);
      before = out;
    }
    ++number;
  }
  return conv(builder, std::to_string(number), x, {.out_channels = 4 * before, .kernel = 1});
}

}  // namespace

Outputs build_efficientnet_b0(Builder& builder, ValueId images, const ModelOptions& options) {
  const double scale = options.width > 0 ? static_cast<double>(options.width) / kStem : 1;
  const ValueId mean = builder.global_avg_pool(features(builder, images, scale));
  const Builder::Scope scope(builder, "classifier");
  return {builder.linear("1", builder.dropout("0", mean, options.dropout), options.num_classes)};
}

}  // namespace hearth::models
