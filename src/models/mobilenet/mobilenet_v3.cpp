// MobileNetV3 (Howard et al. 2019, arXiv 1905.02244) with torchvision's names.
#include <array>
#include <span>
#include <string>

#include "models/mobilenet/inverted_residual.h"
#include "models/model.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using nn::Builder;

constexpr int64_t kStem = 16;

struct Row {
  int64_t kernel, wide, out;
  bool squeezes;
  std::string_view activation;
  int64_t stride;
};
constexpr auto kSmall = std::to_array<Row>({{3, 16, 16, true, "relu", 2},
                                            {3, 72, 24, false, "relu", 2},
                                            {3, 88, 24, false, "relu", 1},
                                            {5, 96, 40, true, "hardswish", 2},
                                            {5, 240, 40, true, "hardswish", 1},
                                            {5, 240, 40, true, "hardswish", 1},
                                            {5, 120, 48, true, "hardswish", 1},
                                            {5, 144, 48, true, "hardswish", 1},
                                            {5, 288, 96, true, "hardswish", 2},
                                            {5, 576, 96, true, "hardswish", 1},
                                            {5, 576, 96, true, "hardswish", 1}});
constexpr auto kLarge = std::to_array<Row>({{3, 16, 16, false, "relu", 1},
                                            {3, 64, 24, false, "relu", 2},
                                            {3, 72, 24, false, "relu", 1},
                                            {5, 72, 40, true, "relu", 2},
                                            {5, 120, 40, true, "relu", 1},
                                            {5, 120, 40, true, "relu", 1},
                                            {3, 240, 80, false, "hardswish", 2},
                                            {3, 200, 80, false, "hardswish", 1},
                                            {3, 184, 80, false, "hardswish", 1},
                                            {3, 184, 80, false, "hardswish", 1},
                                            {3, 480, 112, true, "hardswish", 1},
                                            {3, 672, 112, true, "hardswish", 1},
                                            {5, 672, 160, true, "hardswish", 2},
                                            {5, 960, 160, true, "hardswish", 1},
                                            {5, 960, 160, true, "hardswish", 1}});
constexpr Builder::BatchNorm kNorm{.eps = 1e-3, .momentum = 0.01};

ValueId features(Builder& builder, ValueId images, std::span<const Row> rows, double scale) {
  const Builder::Scope scope(builder, "features");
  const ConvNorm conv{.activation = "hardswish", .norm = kNorm};
  Strides strides(builder, images);
  int64_t before = round_channels(kStem * scale);
  ValueId x = conv(builder, "0", images, {.out_channels = before, .stride = strides.next(2)});
  int number = 1;
  for (const Row& row : rows) {
    const Builder::Scope inner(builder, std::to_string(number++));
    const int64_t wide = round_channels(static_cast<double>(row.wide) * scale);
    const int64_t out = round_channels(static_cast<double>(row.out) * scale);
    x = InvertedResidual{.kernel = row.kernel,
                         .stride = strides.next(row.stride),
                         .wide = wide,
                         .out = out,
                         .squeezed = row.squeezes ? round_channels(static_cast<double>(wide / 4)) : 0,
                         .activation = row.activation,
                         .squeeze_activation = "relu",
                         .gate = "hardsigmoid",
                         .norm = kNorm,
                         .adds_input = row.stride == 1 && before == out}(builder, x);
    before = out;
  }
  return conv(builder, std::to_string(number), x, {.out_channels = 6 * before, .kernel = 1});
}

Outputs classify(Builder& builder, ValueId images, const ModelOptions& options, std::span<const Row> rows,
                 int64_t hidden) {
  const double scale = options.width > 0 ? static_cast<double>(options.width) / kStem : 1;
  ValueId x = builder.global_avg_pool(features(builder, images, rows, scale));
  const Builder::Scope scope(builder, "classifier");
  x = builder.op("hardswish", {builder.linear("0", x, round_channels(static_cast<double>(hidden) * scale),
                                              {.normal = 0.01})});
  x = builder.dropout("2", x, options.dropout);
  return {builder.linear("3", x, options.num_classes, {.normal = 0.01})};
}

}  // namespace

Outputs build_mobilenet_v3_small(Builder& builder, ValueId images, const ModelOptions& options) {
  return classify(builder, images, options, kSmall, 1024);
}
Outputs build_mobilenet_v3_large(Builder& builder, ValueId images, const ModelOptions& options) {
  return classify(builder, images, options, kLarge, 1280);
}

}  // namespace hearth::models
