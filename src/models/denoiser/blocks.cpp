#include "models/denoiser/blocks.h"

#include <cmath>

namespace hearth::models {

using ir::ValueId;
using Scope = nn::Builder::Scope;

ValueId DenoiserBlocks::linear(std::string_view name, ValueId x, int64_t size, bool bias) {
  const int64_t in_features = builder_.graph().type(x).shape.back();
  return builder_.linear(name, x, size,
                         {.bias = bias,
                          .start = nn::Builder::xavier(in_features, size),
                          .is_in_block = !name.ends_with("_embedder")});
}

ValueId DenoiserBlocks::zero_linear(std::string_view name, ValueId x, int64_t size, bool bias) {
  return builder_.linear(name, x, size, {.bias = bias, .start = nn::Init{}});
}

ValueId DenoiserBlocks::embed(std::string_view name, ValueId x, bool bias) {
  const Scope scope(builder_, name);
  const nn::Builder::Linear options{.bias = bias, .normal = 0.02};
  const ValueId inner = silu(builder_.linear("linear_1", x, config_.width(), options));
  return builder_.linear("linear_2", inner, config_.width(), options);
}

ValueId DenoiserBlocks::sinusoids(ValueId time, int64_t shift) {
  return builder_.op("timestep_embedding", {time}, {{"size", config_.time_channels}, {"shift", shift}});
}

ValueId DenoiserBlocks::guidance_time() { return builder_.op("scale", {in_.guidance}, {{"factor", 1000.0}}); }

ValueId DenoiserBlocks::columns(ValueId x, int64_t begin, int64_t count) {
  return builder_.op("slice_last", {x}, {{"begin", begin}, {"count", count}});
}

std::vector<ValueId> DenoiserBlocks::chunks(ValueId x, int64_t count) {
  const int64_t size = builder_.graph().type(x).shape.back() / count;
  std::vector<ValueId> parts;
  for (int64_t i = 0; i < count; ++i) parts.push_back(columns(x, i * size, size));
  return parts;
}

ValueId DenoiserBlocks::reshape(ValueId x, int64_t rows, int64_t size) {
  return builder_.op("reshape", {x}, {{"shape", std::vector<int64_t>{rows, size}}});
}

ValueId DenoiserBlocks::modulated_norm(ValueId x, ValueId shift, ValueId scale, double eps) {
  return builder_.op("modulated_norm", {x, shift, scale}, {{"eps", eps}});
}

ValueId DenoiserBlocks::gated_add(ValueId x, ValueId gate, ValueId branch) {
  return builder_.op("gated_add", {x, gate, branch});
}

ValueId DenoiserBlocks::attend(ValueId q, ValueId k, ValueId v) {
  return builder_.op("attention", {q, k, v, ir::kNone},
                     {{"heads", config_.heads},
                      {"kv_heads", config_.heads},
                      {"head_size", config_.head_size},
                      {"scale", 1 / std::sqrt(static_cast<double>(config_.head_size))},
                      {"batch", in_.num_rows},
                      {"causal", int64_t{0}}});
}

FluxBlocks::FluxBlocks(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in,
                       bool bias)
    : DenoiserBlocks(builder, config, in),
      text_tokens_(config.num_classes > 0 ? config.class_tokens : in.text_tokens),
      bias_(bias),
      rope_(builder.op("axes_rope_table", {},
                       {{"batch", in.num_rows},
                        {"text", text_tokens_},
                        {"height", in.patches.height},
                        {"width", in.patches.width},
                        {"axes", config.axes},
                        {"theta", config.theta}})) {}

ValueId FluxBlocks::join(Streams parts) {
  const int64_t size = builder_.graph().type(parts.image).shape.back();
  const ValueId text = reshape(parts.text, in_.num_rows, text_tokens_ * size);
  const ValueId image = reshape(parts.image, in_.num_rows, num_tokens() * size);
  return reshape(builder_.concat({text, image}), in_.num_rows * (text_tokens_ + num_tokens()), size);
}

FluxBlocks::Streams FluxBlocks::split(ValueId joined) {
  const int64_t size = builder_.graph().type(joined).shape.back();
  const ValueId samples = reshape(joined, in_.num_rows, (text_tokens_ + num_tokens()) * size);
  const ValueId text = columns(samples, 0, text_tokens_ * size);
  const ValueId image = columns(samples, text_tokens_ * size, num_tokens() * size);
  return {.text = reshape(text, in_.num_rows * text_tokens_, size),
          .image = reshape(image, in_.num_rows * num_tokens(), size)};
}

ValueId FluxBlocks::norm_heads(std::string_view name, ValueId x) {
  const int64_t rows = builder_.graph().type(x).shape[0];
  const ValueId heads = reshape(x, rows * config_.heads, config_.head_size);
  return reshape(builder_.rms_norm(name, heads, config_.eps), rows, config_.width());
}

ValueId FluxBlocks::rotate(ValueId x) {
  return builder_.op(
      "rope", {x, rope_},
      {{"head_size", config_.head_size}, {"inverse", int64_t{0}}, {"interleaved", int64_t{1}}});
}

FluxBlocks::Streams FluxBlocks::attend_both(Streams x) {
  const Scope scope(builder_, "attn");
  const int64_t width = config_.width();
  const ValueId q = norm_heads("norm_q", linear("to_q", x.image, width, bias_));
  const ValueId k = norm_heads("norm_k", linear("to_k", x.image, width, bias_));
  const ValueId v = linear("to_v", x.image, width, bias_);
  const ValueId text_q = norm_heads("norm_added_q", linear("add_q_proj", x.text, width, bias_));
  const ValueId text_k = norm_heads("norm_added_k", linear("add_k_proj", x.text, width, bias_));
  const ValueId text_v = linear("add_v_proj", x.text, width, bias_);
  const Streams mixed =
      split(attend(rotate(join({text_q, q})), rotate(join({text_k, k})), join({text_v, v})));
  return {.text = linear("to_add_out", mixed.text, width, bias_),
          .image = linear("to_out.0", mixed.image, width, bias_)};
}

ValueId FluxBlocks::last_layers(ValueId joined, ValueId condition) {
  const std::vector<ValueId> parts =
      chunks(zero_linear("norm_out.linear", condition, 2 * config_.width(), bias_), 2);
  const ValueId normed = modulated_norm(split(joined).image, parts[1], parts[0]);
  return zero_linear("proj_out", normed, config_.out_features(), bias_);
}

}  // namespace hearth::models
