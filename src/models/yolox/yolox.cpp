#include "models/yolox/yolox.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using nn::Builder;

constexpr std::array<YoloxSize, 6> kSizes = {{
    {.name = "yolox_pico", .depth = 0.33, .width = 0.25},
    {.name = "yolox_nano", .depth = 0.33, .width = 0.25, .depthwise = true},
    {.name = "yolox_tiny", .depth = 0.33, .width = 0.375},
    {.name = "yolox_s", .depth = 0.33, .width = 0.5},
    {.name = "yolox_m", .depth = 0.67, .width = 0.75},
    {.name = "yolox_l"},
}};

/// Feature maps of three levels (strides 8, 16, 32), finest first.
using Levels = std::array<ValueId, 3>;

/// Layers shared by backbone, neck and heads.
class Layers {
 public:
  Layers(Builder& builder, const YoloxSize& size) : builder_(builder), size_(size) {}

  int64_t channels(int64_t of_large) const {
    return static_cast<int64_t>(static_cast<double>(of_large) * size_.width);
  }
  int num_blocks(int of_large) const { return static_cast<int>(std::lround(of_large * size_.depth)); }

  /// Adds a convolution, batch norm and SiLU.
  ValueId unit(std::string_view name, ValueId in, Builder::Conv conv) {
    const Builder::Scope scope(builder_, name);
    conv.padding = (conv.kernel - 1) / 2;
    const ValueId x =
        builder_.batch_norm("bn", builder_.conv("conv", in, conv), {.eps = 1e-3, .momentum = 0.03});
    return builder_.op("silu", {x});
  }
  ValueId pointwise(std::string_view name, ValueId in, int64_t channels) {
    return unit(name, in, {.out_channels = channels, .kernel = 1});
  }
  /// Adds a 3x3 convolution; depthwise-separable if YoloxSize::depthwise is true.
  ValueId spatial(std::string_view name, ValueId in, int64_t channels, int64_t stride = 1) {
    if (!size_.depthwise) return unit(name, in, {.out_channels = channels, .stride = stride});
    const Builder::Scope scope(builder_, name);
    const int64_t before = channels_of(in);
    return pointwise("pconv", unit("dconv", in, {.out_channels = before, .stride = stride, .groups = before}),
                     channels);
  }
  /// Adds a cross-stage partial layer (CSP, arXiv 1911.11929).
  ValueId csp(std::string_view name, ValueId in, int64_t channels, int num_blocks, bool residual) {
    const Builder::Scope scope(builder_, name);
    ValueId x = pointwise("conv1", in, channels / 2);
    const ValueId beside = pointwise("conv2", in, channels / 2);
    for (int block = 0; block < num_blocks; ++block) {
      const Builder::Scope inner(builder_, fmt::format("m.{}", block));
      const ValueId out = spatial("conv2", pointwise("conv1", x, channels / 2), channels / 2);
      x = residual ? builder_.add(out, x) : out;
    }
    return pointwise("conv3", builder_.concat({x, beside}), channels);
  }
  /// Adds spatial pyramid pooling (SPP).
  ValueId pyramid_pool(std::string_view name, ValueId in) {
    const Builder::Scope scope(builder_, name);
    const ValueId x = pointwise("conv1", in, channels_of(in) / 2);
    std::vector<ValueId> all = {x};
    for (const int64_t kernel : {5, 9, 13}) all.push_back(builder_.max_pool(x, kernel, 1, kernel / 2));
    return pointwise("conv2", builder_.concat(all), channels_of(in));
  }
  ValueId doubled(ValueId in) {
    const Shape& shape = builder_.graph().type(in).shape;
    return builder_.resize(in, 2 * shape[1], 2 * shape[2], false);
  }
  int64_t channels_of(ValueId value) const { return builder_.graph().type(value).shape.back(); }
  Builder& builder() { return builder_; }

 private:
  Builder& builder_;
  const YoloxSize& size_;
};

Levels darknet(Layers& layers, ValueId images) {
  const Builder::Scope scope(layers.builder(), "backbone.backbone");
  const int64_t base = layers.channels(64);
  const int blocks = std::max(layers.num_blocks(3), 1);
  ValueId x = ir::kNone;
  {
    const Builder::Scope stem(layers.builder(), "stem");
    x = layers.unit("conv", images, {.out_channels = base, .kernel = 6, .stride = 2, .space_to_depth = true});
  }
  Levels made{};
  for (int stage = 0; stage < 4; ++stage) {
    const Builder::Scope inner(layers.builder(), fmt::format("dark{}", stage + 2));
    const int64_t channels = base << (stage + 1);
    x = layers.spatial("0", x, channels, 2);
    if (stage == 3) x = layers.pyramid_pool("1", x);
    const bool middle = stage == 1 || stage == 2;
    x = layers.csp(stage == 3 ? "2" : "1", x, channels, middle ? 3 * blocks : blocks, stage < 3);
    if (stage > 0) made[static_cast<size_t>(stage - 1)] = x;
  }
  return made;
}

/// Path aggregation network (PAN, arXiv 1803.01534): merges coarse levels into finer ones, then fine levels
/// into coarser ones.
Levels neck(Layers& layers, const Levels& in) {
  Builder& builder = layers.builder();
  const Builder::Scope scope(builder, "backbone");
  const int64_t fine = layers.channels(256), middle = layers.channels(512), coarse = layers.channels(1024);
  const int blocks = layers.num_blocks(3);
  const auto csp = [&](std::string_view name, ValueId a, ValueId b, int64_t channels) {
    return layers.csp(name, builder.concat({a, b}), channels, blocks, false);
  };
  const ValueId lateral = layers.pointwise("lateral_conv0", in[2], middle);
  const ValueId joined = csp("C3_p4", layers.doubled(lateral), in[1], middle);
  const ValueId reduced = layers.pointwise("reduce_conv1", joined, fine);
  Levels made{};
  made[0] = csp("C3_p3", layers.doubled(reduced), in[0], fine);
  made[1] = csp("C3_n3", layers.spatial("bu_conv2", made[0], fine, 2), reduced, middle);
  made[2] = csp("C3_n4", layers.spatial("bu_conv1", made[1], middle, 2), lateral, coarse);
  return made;
}

/// Returns the predictions of one level, [N, cells * (5 + C)].
ValueId predict(Layers& layers, ValueId in, int level, int64_t num_classes) {
  Builder& builder = layers.builder();
  const int64_t width = layers.channels(256);
  const auto name = [&](const char* part) { return fmt::format("{}.{}", part, level); };
  const auto branch = [&](const char* part, ValueId x) {
    const Builder::Scope scope(builder, name(part));
    return layers.spatial("1", layers.spatial("0", x, width), width);
  };
  const double rare = -std::log((1 - 0.01) / 0.01);  // prior of the focal loss: one anchor in a hundred
  const auto last = [&](const char* part, ValueId x, int64_t channels, std::optional<double> bias) {
    return builder.conv(
        name(part), x,
        {.out_channels = channels, .kernel = 1, .padding = 0, .bias = true, .bias_init = bias});
  };
  const ValueId x = layers.pointwise(name("stems"), in, width);
  const ValueId of_class = branch("cls_convs", x), of_box = branch("reg_convs", x);
  const ValueId all = builder.concat({last("reg_preds", of_box, 4, {}), last("obj_preds", of_box, 1, rare),
                                      last("cls_preds", of_class, num_classes, rare)});
  return builder.flatten(all);
}

}  // namespace

std::span<const YoloxSize> yolox_sizes() { return kSizes; }

const YoloxSize& find_yolox(std::string_view name) {
  std::vector<std::string> names;
  for (const YoloxSize& size : kSizes) {
    if (size.name == name) return size;
    names.emplace_back(size.name);
  }
  user_error("there is no model '{}'{}", name, did_you_mean(name, names));
}

int64_t num_yolox_anchors(int64_t height, int64_t width) {
  int64_t anchors = 0;
  for (const int64_t stride : kYoloxStrides) anchors += height / stride * (width / stride);
  return anchors;
}

ValueId build_yolox(Builder& builder, ValueId images, const YoloxSize& size, int64_t num_classes) {
  const Shape image_shape = builder.graph().type(images).shape;
  if (image_shape[1] % 32 != 0 || image_shape[2] % 32 != 0)
    user_error("expected images with sides that are multiples of 32, got {} x {} for {}", image_shape[1],
               image_shape[2], size.name);
  Layers layers(builder, size);
  const Levels levels = neck(layers, darknet(layers, images));
  const Builder::Scope scope(builder, "head");
  std::vector<ValueId> all;
  for (int level = 0; level < 3; ++level)
    all.push_back(predict(layers, levels[static_cast<size_t>(level)], level, num_classes));
  const int64_t anchors = num_yolox_anchors(image_shape[1], image_shape[2]);
  return builder.op("reshape", {builder.concat(all)},
                    {{"shape", std::vector<int64_t>{image_shape[0], anchors, 5 + num_classes}}});
}

}  // namespace hearth::models
