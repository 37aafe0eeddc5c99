#include "models/decoder/decoder.h"

#include "ops/op_list.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using Scope = nn::Builder::Scope;
using Positions = DecoderConfig::Positions;

/// Names that transformers gives to the modules of a family.
struct Names {
  const char* model = "model";
  const char* table = "embed_tokens";
  const char* layers = "layers.";
  const char* attention = "self_attn";
  const char* fused = "qkv_proj";
  const char* out = "o_proj";
  const char* before_attention = "input_layernorm";
  const char* after_attention = "post_attention_layernorm";
  const char* before_mlp = "post_attention_layernorm";
  const char* after_mlp = "post_feedforward_layernorm";
  const char* up = "up_proj";
  const char* down = "down_proj";
  const char* last_norm = "norm";
};
constexpr Names kGpt2Names{.model = "transformer",
                           .table = "wte",
                           .layers = "h.",
                           .attention = "attn",
                           .fused = "c_attn",
                           .out = "c_proj",
                           .before_attention = "ln_1",
                           .before_mlp = "ln_2",
                           .up = "c_fc",
                           .down = "c_proj",
                           .last_norm = "ln_f"};
Names names_of(const DecoderConfig& config) {
  if (config.family == "gpt2") return kGpt2Names;
  return config.post_norms ? Names{.before_mlp = "pre_feedforward_layernorm"} : Names{};
}

class Decoder {
 public:
  Decoder(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in)
      : builder_(builder), config_(config), in_(in), names_(names_of(config)) {
    check_context(config, in.reach());
    if (uses(Positions::rope)) rope_ = add_table(config.rope);
    if (uses(Positions::local_rope)) local_rope_ = add_table(*config.local_rope);
  }

  DecoderOutputs run() {
    DecoderOutputs out;
    ValueId x = embed(out.head);
    const Scope scope(builder_, names_.model);
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      const Scope layer(builder_, names_.layers + std::to_string(i));
      x = run_layer(x, i);
    }
    out.hidden = scaled(norm(names_.last_norm, x), config_.hidden_scale);
    return out;
  }

  /// Returns the input of the first layer, and sets `table` to the embedding table.
  ValueId embed(ValueId& table) {
    const Scope scope(builder_, names_.model);
    table = builder_.table(names_.table, config_.vocab_size, config_.hidden, config_.init_normal);
    const ValueId x = scaled(builder_.op("embedding", {in_.tokens, table}), config_.embedding_scale);
    return config_.learned_positions ? add_positions(x) : x;
  }

  ValueId run_layer(ValueId x, int64_t layer) {
    ValueId branch = attend(pre_norm(names_.before_attention, x), layer);
    x = add_branch(x, post_norm(names_.after_attention, branch));
    branch = feed_forward(pre_norm(names_.before_mlp, x), layer);
    return add_branch(x, post_norm(names_.after_mlp, branch));
  }

 private:
  /// Adds learned position embeddings. Padding tokens have position -1; no other token attends to them.
  ValueId add_positions(ValueId x) {
    const ValueId table = builder_.table("wpe", config_.max_positions, config_.hidden, config_.init_normal);
    return builder_.add(x, builder_.op("embedding", {in_.positions, table}));
  }
  Positions positions(int64_t layer) const {
    return config_.positions.empty() ? Positions::rope : config_.positions[static_cast<size_t>(layer)];
  }
  bool uses(Positions wanted) const {
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      if (positions(i) == wanted) return true;
    }
    return false;
  }
  ValueId add_table(const RopeOptions& options) {
    const RopeTable rope = rope_table(options, config_.head_size);
    std::vector<ValueId> inputs = {in_.positions};
    ir::Attrs attrs = {{"inv_freq", rope.inv_freq}, {"scale", rope.scale}};
    if (!rope.long_inv_freq.empty() && in_.reach() > rope.original) {
      attrs.set("long_inv_freq", rope.long_inv_freq);
      attrs.set("original", rope.original);
      if (in_.last_position != ir::kNone) inputs.push_back(in_.last_position);
    }
    return builder_.op("rope_table", inputs, attrs);
  }

  ValueId scaled(ValueId x, double factor) {
    return factor == 1 ? x : builder_.op("scale", {x}, {{"factor", factor}});
  }
  ValueId norm(const char* name, ValueId x) {
    if (config_.layer_norms) return builder_.layer_norm(name, x, config_.norm_eps);
    return builder_.rms_norm(name, x, config_.norm_eps, config_.norm_offset);
  }
  ValueId linear(const char* name, ValueId x, int64_t out_features, bool bias, double normal) {
    return builder_.linear(
        name, x, out_features,
        {.bias = bias, .normal = normal, .transposed = config_.transposed, .is_in_block = true});
  }
  ValueId linear(const char* name, ValueId x, int64_t out_features, bool bias) {
    return linear(name, x, out_features, bias, config_.init_normal);
  }
  /// Adds the output projection of attention or MLP.
  ValueId output_projection(const char* name, ValueId x, bool bias) {
    const double normal = config_.branch_init_normal > 0 ? config_.branch_init_normal : config_.init_normal;
    return linear(name, x, config_.hidden, bias, normal);
  }
  ValueId columns(ValueId x, int64_t begin, int64_t count) {
    return builder_.op("slice_last", {x}, {{"begin", begin}, {"count", count}});
  }

  ValueId add_branch(ValueId x, ValueId branch) {
    return builder_.add(x, scaled(branch, config_.residual_scale));
  }
  ValueId pre_norm(const char* name, ValueId x) { return config_.pre_norms ? norm(name, x) : x; }
  ValueId post_norm(const char* name, ValueId x) { return config_.post_norms ? norm(name, x) : x; }

  /// Applies QK norm, per head or over all heads, and then RoPE.
  ValueId norm_and_rotate(const char* norm_name, ValueId x, int64_t num_heads, Positions by) {
    if (config_.qk_norm_whole) x = norm(norm_name, x);
    if (config_.qk_norm) {
      const int64_t count = in_.num_rows * in_.context;
      x = builder_.op("reshape", {x},
                      {{"shape", std::vector<int64_t>{count * num_heads, config_.head_size}}});
      x = norm(norm_name, x);
      x = builder_.op("reshape", {x},
                      {{"shape", std::vector<int64_t>{count, num_heads * config_.head_size}}});
    }
    if (by == Positions::none) return x;
    const ValueId table = by == Positions::rope ? rope_ : local_rope_;
    return builder_.op("rope", {x, table}, {{"head_size", config_.head_size}, {"inverse", int64_t{0}}});
  }

  ValueId attend(ValueId x, int64_t layer) {
    const Scope scope(builder_, names_.attention);
    const int64_t q_size = config_.num_heads * config_.head_size;
    const int64_t kv_size = config_.num_kv_heads * config_.head_size;
    ValueId q = ir::kNone, k = ir::kNone, v = ir::kNone;
    if (config_.fused_projections) {
      const ValueId qkv = linear(names_.fused, x, q_size + 2 * kv_size, config_.qkv_bias);
      q = columns(qkv, 0, q_size);
      k = columns(qkv, q_size, kv_size);
      v = columns(qkv, q_size + kv_size, kv_size);
    } else {
      q = linear("q_proj", x, q_size, config_.qkv_bias);
      k = linear("k_proj", x, kv_size, config_.qkv_bias);
      v = linear("v_proj", x, kv_size, config_.qkv_bias);
    }
    q = norm_and_rotate("q_norm", q, config_.num_heads, positions(layer));
    k = norm_and_rotate("k_norm", k, config_.num_kv_heads, positions(layer));
    return output_projection(names_.out, attention_op(q, k, v, layer), config_.out_bias);
  }

  ValueId attention_op(ValueId q, ValueId k, ValueId v, int64_t layer) {
    const int64_t window = config_.windows[static_cast<size_t>(layer)];
    const double divisor = config_.scale_by_layer ? static_cast<double>(layer + 1) : 1;
    ir::Attrs attrs = {{"heads", config_.num_heads},
                       {"kv_heads", config_.num_kv_heads},
                       {"head_size", config_.head_size},
                       {"scale", config_.attention_scale / divisor},
                       {"window", window < in_.reach() ? window : 0},
                       {"softcap", config_.attention_cap}};
    if (in_.cache_slots > 0) {
      const Shape cache = {in_.cache_sequences, in_.cache_slots, config_.num_kv_heads * config_.head_size};
      return builder_.op("cached_attention",
                         {q, k, v, builder_.memory("keys", cache), builder_.memory("values", cache),
                          in_.positions, in_.sequences},
                         std::move(attrs));
    }
    attrs.set("batch", in_.num_rows);
    attrs.set("causal", int64_t{in_.bias == ir::kNone});
    std::vector<ValueId> inputs = {q, k, v, in_.starts};
    if (in_.bias != ir::kNone) inputs.push_back(in_.bias);
    return builder_.op("attention", std::move(inputs), std::move(attrs));
  }

  struct MlpNames {
    const char *gate, *up, *down;
  };
  static constexpr MlpNames kMixtral = {"w1", "w3", "w2"};

  MlpNames default_names() const { return {"gate_proj", names_.up, names_.down}; }

  ValueId feed_forward(ValueId x, int64_t layer) {
    const ExpertsConfig& experts = config_.experts;
    const Scope scope(builder_, experts.mixtral_names ? "block_sparse_moe" : "mlp");
    if (experts.count > 0 && experts.layers[static_cast<size_t>(layer)]) return run_experts(x);
    return mlp(x, config_.intermediate, default_names());
  }

  ValueId mlp(ValueId x, int64_t size, const MlpNames& names) {
    if (!config_.gated_mlp) {
      const ValueId up = linear(names.up, x, size, config_.mlp_bias);
      return output_projection(names.down, builder_.op(config_.activation, {up}), config_.mlp_bias);
    }
    ValueId gate = ir::kNone, up = ir::kNone;
    if (config_.fused_projections) {
      const ValueId both = linear("gate_up_proj", x, 2 * size, config_.mlp_bias);
      gate = columns(both, 0, size);
      up = columns(both, size, size);
    } else {
      gate = linear(names.gate, x, size, config_.mlp_bias);
      up = linear(names.up, x, size, config_.mlp_bias);
    }
    const ValueId gated = builder_.op("glu", {gate, up}, {{"activation", config_.activation}});
    return output_projection(names.down, gated, config_.mlp_bias);
  }

  /// Returns the router weights, [N, experts]; 0 for experts that the router did not choose for the token.
  ValueId route(ValueId x) {
    const ValueId logits =
        builder_.linear("gate", x, config_.experts.count,
                        {.bias = false, .normal = config_.init_normal, .transposed = config_.transposed});
    const ValueId shares = builder_.op("softmax", {logits});
    const ValueId chosen = builder_.op("top_k_mask", {shares}, {{"count", config_.experts.per_token}});
    const ValueId kept = builder_.op("mul", {shares, chosen});
    if (!config_.experts.normalized) return kept;
    const ValueId sum = builder_.op("row_dot", {shares, chosen});
    return builder_.op("scale_rows", {kept, builder_.op("reciprocal", {sum})});
  }

  /// Computes every expert on every token and sums the outputs with the weights of route(), which are 0 for
  /// experts that were not chosen.
  ValueId run_experts(ValueId x) {
    const ValueId shares = route(x);
    ValueId sum = ir::kNone;
    for (int64_t i = 0; i < config_.experts.count; ++i) {
      const Scope scope(builder_, "experts." + std::to_string(i));
      const ValueId made =
          mlp(x, config_.experts.intermediate, config_.experts.mixtral_names ? kMixtral : default_names());
      const ValueId part = builder_.op("scale_rows", {made, columns(shares, i, 1)});
      sum = sum == ir::kNone ? part : builder_.add(sum, part);
    }
    return sum;
  }

  nn::Builder& builder_;
  const DecoderConfig& config_;
  const DecoderInputs& in_;
  const Names names_;
  ValueId rope_ = ir::kNone, local_rope_ = ir::kNone;
};

}  // namespace

DecoderOutputs build_decoder(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in) {
  DecoderOutputs out = Decoder(builder, config, in).run();
  if (!config.tied_head)
    out.head = builder.table("lm_head", config.vocab_size, config.hidden, config.init_normal);
  return out;
}

DecoderOutputs build_decoder_for_one_token(nn::Builder& builder, const DecoderConfig& config) {
  const ir::Type ids{.dtype = DType::i32, .shape = {1}};
  return build_decoder(
      builder, config,
      {.tokens = builder.input("tokens", ids), .positions = builder.input("positions", ids), .context = 1});
}

ValueId build_decoder_input(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in) {
  ValueId table = ir::kNone;
  return Decoder(builder, config, in).embed(table);
}

std::string decoder_layer_name(const DecoderConfig& config, int64_t layer) {
  const Names names = names_of(config);
  return std::string(names.model) + "." + names.layers + std::to_string(layer);
}

ValueId build_decoder_layer(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in,
                            ValueId x, int64_t layer) {
  return Decoder(builder, config, in).run_layer(x, layer);
}

}  // namespace hearth::models
