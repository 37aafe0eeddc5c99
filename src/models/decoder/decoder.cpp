#include "models/decoder/decoder.h"

#include "ops/op_list.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using Scope = nn::Builder::Scope;

class Decoder {
 public:
  Decoder(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in)
      : builder_(builder), config_(config), in_(in) {
    const RopeTable rope = rope_table(config.rope, config.head_size);
    std::vector<ValueId> inputs = {in.positions};
    ir::Attrs attrs = {{"inv_freq", rope.inv_freq}, {"scale", rope.scale}};
    if (!rope.long_inv_freq.empty() && in.reach() > rope.original) {
      attrs.set("long_inv_freq", rope.long_inv_freq);
      attrs.set("original", rope.original);
      if (in.last_position != ir::kNone) inputs.push_back(in.last_position);
    }
    rope_ = builder.op("rope_table", inputs, attrs);
  }

  DecoderOutputs run() {
    DecoderOutputs out;
    const Scope scope(builder_, "model");
    const ValueId table =
        builder_.table("embed_tokens", config_.vocab_size, config_.hidden, config_.init_normal);
    ValueId x = builder_.op("embedding", {in_.tokens, table});
    if (config_.embedding_scale != 1) x = builder_.op("scale", {x}, {{"factor", config_.embedding_scale}});
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      const Scope layer(builder_, "layers." + std::to_string(i));
      x = run_layer(x, config_.windows[static_cast<size_t>(i)]);
    }
    out.hidden = norm("norm", x);
    out.head = table;
    return out;
  }

 private:
  ValueId norm(const char* name, ValueId x) {
    return builder_.rms_norm(name, x, config_.norm_eps, config_.norm_offset);
  }
  ValueId linear(const char* name, ValueId x, int64_t out_features, bool bias) {
    return builder_.linear(name, x, out_features, {.bias = bias, .normal = config_.init_normal});
  }
  ValueId columns(ValueId x, int64_t begin, int64_t count) {
    return builder_.op("slice_last", {x}, {{"begin", begin}, {"count", count}});
  }

  ValueId run_layer(ValueId x, int64_t window) {
    ValueId branch = attend(norm("input_layernorm", x), window);
    if (config_.sandwich_norms) branch = norm("post_attention_layernorm", branch);
    x = builder_.add(x, branch);
    const char* before = config_.sandwich_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    branch = feed_forward(norm(before, x));
    if (config_.sandwich_norms) branch = norm("post_feedforward_layernorm", branch);
    return builder_.add(x, branch);
  }

  /// One RMS norm per head, then rotation.
  ValueId turn(const char* norm_name, ValueId x, int64_t num_heads) {
    if (config_.qk_norm) {
      const int64_t count = in_.num_rows * in_.context;
      x = builder_.op("reshape", {x},
                      {{"shape", std::vector<int64_t>{count * num_heads, config_.head_size}}});
      x = norm(norm_name, x);
      x = builder_.op("reshape", {x},
                      {{"shape", std::vector<int64_t>{count, num_heads * config_.head_size}}});
    }
    return builder_.op("rope", {x, rope_}, {{"head_size", config_.head_size}, {"inverse", int64_t{0}}});
  }

  ValueId attend(ValueId x, int64_t window) {
    const Scope scope(builder_, "self_attn");
    const int64_t q_size = config_.num_heads * config_.head_size;
    const int64_t kv_size = config_.num_kv_heads * config_.head_size;
    ValueId q = ir::kNone, k = ir::kNone, v = ir::kNone;
    if (config_.fused_projections) {
      const ValueId qkv = linear("qkv_proj", x, q_size + 2 * kv_size, config_.qkv_bias);
      q = columns(qkv, 0, q_size);
      k = columns(qkv, q_size, kv_size);
      v = columns(qkv, q_size + kv_size, kv_size);
    } else {
      q = linear("q_proj", x, q_size, config_.qkv_bias);
      k = linear("k_proj", x, kv_size, config_.qkv_bias);
      v = linear("v_proj", x, kv_size, config_.qkv_bias);
    }
    q = turn("q_norm", q, config_.num_heads);
    k = turn("k_norm", k, config_.num_kv_heads);
    return linear("o_proj", mix(q, k, v, window), config_.hidden, config_.out_bias);
  }

  ValueId mix(ValueId q, ValueId k, ValueId v, int64_t window) {
    ir::Attrs attrs = {{"heads", config_.num_heads},
                       {"kv_heads", config_.num_kv_heads},
                       {"head_size", config_.head_size},
                       {"scale", config_.attention_scale},
                       {"window", window < in_.reach() ? window : 0},
                       {"softcap", config_.attention_cap}};
    if (in_.cache_slots > 0) {
      const Shape slots = {in_.cache_slots, config_.num_kv_heads * config_.head_size};
      return builder_.op(
          "cached_attention",
          {q, k, v, builder_.memory("keys", slots), builder_.memory("values", slots), in_.positions},
          std::move(attrs));
    }
    attrs.set("batch", in_.num_rows);
    attrs.set("causal", int64_t{1});
    return builder_.op("attention", {q, k, v, in_.starts}, std::move(attrs));
  }

  ValueId feed_forward(ValueId x) {
    const Scope scope(builder_, "mlp");
    const int64_t size = config_.intermediate;
    ValueId gate = ir::kNone, up = ir::kNone;
    if (config_.fused_projections) {
      const ValueId both = linear("gate_up_proj", x, 2 * size, config_.mlp_bias);
      gate = columns(both, 0, size);
      up = columns(both, size, size);
    } else {
      gate = linear("gate_proj", x, size, config_.mlp_bias);
      up = linear("up_proj", x, size, config_.mlp_bias);
    }
    const ValueId gated = builder_.op("glu", {gate, up}, {{"activation", config_.activation}});
    return linear("down_proj", gated, config_.hidden, config_.mlp_bias);
  }

  nn::Builder& builder_;
  const DecoderConfig& config_;
  const DecoderInputs& in_;
  ValueId rope_ = ir::kNone;
};

}  // namespace

DecoderOutputs build_decoder(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in) {
  DecoderOutputs out = Decoder(builder, config, in).run();
  if (!config.tied_head)
    out.head = builder.table("lm_head", config.vocab_size, config.hidden, config.init_normal);
  return out;
}

}  // namespace hearth::models
