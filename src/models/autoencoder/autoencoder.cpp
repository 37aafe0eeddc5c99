#include "models/autoencoder/autoencoder.h"

#include <cmath>

#include "base/error.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using Scope = nn::Builder::Scope;

/// Layers shared by encoder and decoder.
class ImageBlocks {
 public:
  ImageBlocks(nn::Builder& builder, const AutoencoderConfig& config) : builder_(builder), config_(config) {}

  ValueId conv(std::string_view name, ValueId x, int64_t channels, int64_t kernel = 3) {
    return builder_.conv(name, x,
                         {.out_channels = channels, .kernel = kernel, .padding = kernel / 2, .bias = true});
  }
  ValueId norm(std::string_view name, ValueId x) {
    return builder_.group_norm(name, x, config_.groups, 1e-6);
  }
  ValueId norm_silu(std::string_view name, ValueId x) { return builder_.op("silu", {norm(name, x)}); }

  ValueId resnet(const std::string& name, ValueId x, int64_t channels) {
    const Scope scope(builder_, name);
    ValueId branch = conv("conv1", norm_silu("norm1", x), channels);
    branch = conv("conv2", norm_silu("norm2", branch), channels);
    const bool same = builder_.graph().type(x).shape.back() == channels;
    return builder_.add(same ? x : conv("conv_shortcut", x, channels, 1), branch);
  }

  ValueId middle(ValueId x) {
    const Scope scope(builder_, "mid_block");
    const int64_t channels = builder_.graph().type(x).shape.back();
    x = resnet("resnets.0", x, channels);
    if (config_.attention) x = attend(x);
    return resnet("resnets.1", x, channels);
  }

  /// Halves height and width by a convolution of stride 2. Only the lower and right edges are padded with
  /// zeros.
  ValueId shrink(ValueId x) {
    const Shape shape = builder_.graph().type(x).shape;
    const int64_t n = shape[0], height = shape[1], width = shape[2], channels = shape[3];
    x = pad(x, {n, height * width * channels}, (height + 1) * width * channels);
    x = pad(x, {n * (height + 1), width * channels}, (width + 1) * channels);
    x = reshape(x, {n, height + 1, width + 1, channels});
    return builder_.conv("downsamplers.0.conv", x,
                         {.out_channels = channels, .stride = 2, .padding = 0, .bias = true});
  }
  ValueId enlarge(ValueId x) {
    const Shape shape = builder_.graph().type(x).shape;
    x = builder_.resize(x, 2 * shape[1], 2 * shape[2], false);
    return conv("upsamplers.0.conv", x, shape[3]);
  }

 private:
  ValueId reshape(ValueId x, const std::vector<int64_t>& shape) {
    return builder_.op("reshape", {x}, {{"shape", shape}});
  }
  /// Reshapes `x` to the shape `rows` and pads its last axis with zeros to `width` elements.
  ValueId pad(ValueId x, const std::vector<int64_t>& rows, int64_t width) {
    return builder_.op("pad_last", {reshape(x, rows)}, {{"begin", int64_t{0}}, {"width", width}});
  }
  ValueId attend(ValueId x) {
    const Scope scope(builder_, "attentions.0");
    const Shape shape = builder_.graph().type(x).shape;
    const int64_t channels = shape[3], pixels = shape[1] * shape[2];
    const ValueId rows = reshape(norm("group_norm", x), {shape[0] * pixels, channels});
    const ValueId mixed =
        builder_.op("attention",
                    {builder_.linear("to_q", rows, channels), builder_.linear("to_k", rows, channels),
                     builder_.linear("to_v", rows, channels)},
                    {{"batch", shape[0]},
                     {"heads", int64_t{1}},
                     {"kv_heads", int64_t{1}},
                     {"head_size", channels},
                     {"scale", 1 / std::sqrt(static_cast<double>(channels))},
                     {"causal", int64_t{0}}});
    const ValueId out = builder_.linear("to_out.0", mixed, channels);
    return builder_.add(reshape(out, {shape[0], shape[1], shape[2], channels}), x);
  }

  nn::Builder& builder_;
  const AutoencoderConfig& config_;
};

std::string numbered(const char* name, int64_t number) { return name + std::to_string(number); }

ValueId encode(nn::Builder& builder, const AutoencoderConfig& config, ValueId x) {
  const Scope scope(builder, "encoder");
  ImageBlocks blocks(builder, config);
  const int64_t levels = std::ssize(config.widths);
  x = blocks.conv("conv_in", x, config.widths[0]);
  for (int64_t level = 0; level < levels; ++level) {
    const Scope block(builder, numbered("down_blocks.", level));
    for (int64_t i = 0; i < config.layers; ++i)
      x = blocks.resnet(numbered("resnets.", i), x, config.widths[static_cast<size_t>(level)]);
    if (level + 1 < levels) x = blocks.shrink(x);
  }
  x = blocks.norm_silu("conv_norm_out", blocks.middle(x));
  return blocks.conv("conv_out", x, 2 * config.channels);
}

ValueId decode(nn::Builder& builder, const AutoencoderConfig& config, ValueId x) {
  const Scope scope(builder, "decoder");
  ImageBlocks blocks(builder, config);
  const int64_t levels = std::ssize(config.decoder_widths);
  x = blocks.middle(blocks.conv("conv_in", x, config.decoder_widths.back()));
  for (int64_t level = 0; level < levels; ++level) {
    const Scope block(builder, numbered("up_blocks.", level));
    const int64_t width = config.decoder_widths[static_cast<size_t>(levels - 1 - level)];
    for (int64_t i = 0; i <= config.layers; ++i) x = blocks.resnet(numbered("resnets.", i), x, width);
    if (level + 1 < levels) x = blocks.enlarge(x);
  }
  return blocks.conv("conv_out", blocks.norm_silu("conv_norm_out", x), 3);
}

}  // namespace

ValueId build_image_encoder(nn::Builder& builder, const AutoencoderConfig& config, ValueId images) {
  const Shape shape = builder.graph().type(images).shape;
  HEARTH_CHECK(shape[1] % config.factor() == 0 && shape[2] % config.factor() == 0);
  const ValueId moments = encode(builder, config, images);
  return config.quant_conv ? ImageBlocks(builder, config).conv("quant_conv", moments, 2 * config.channels, 1)
                           : moments;
}

ValueId build_image_decoder(nn::Builder& builder, const AutoencoderConfig& config, ValueId latents) {
  if (config.post_quant_conv)
    latents = ImageBlocks(builder, config).conv("post_quant_conv", latents, config.channels, 1);
  return decode(builder, config, latents);
}

}  // namespace hearth::models
