#include "hub/gguf_parts.h"

#include <fmt/format.h>

namespace hearth::hub {
namespace {

using models::DecoderConfig;

constexpr int64_t kGemma27bLayers = 46;

/// Builder of gguf_parts().
class TensorList {
 public:
  explicit TensorList(const DecoderConfig& config) : config_(config) {
    add("model.embed_tokens.weight", kGgufEmbeddings, {config.vocab_size, config.hidden});
    for (int64_t i = 0; i < config.num_layers; ++i) {
      source_ = fmt::format("model.layers.{}.", i);
      target_ = fmt::format("blk.{}.", i);
      add_norms();
      add_attention();
      add_mlp();
    }
    source_ = target_ = "";
    add_norm("model.norm", "output_norm", config.hidden);
    if (!config.tied_head) add("lm_head.weight", kGgufHead, {config.vocab_size, config.hidden});
    add_rope_tables();
  }
  std::vector<GgufPart> take() { return std::move(parts_); }

 private:
  void add(const std::string& source, const std::string& target, Shape shape, int64_t heads = 0) {
    GgufPart& part = parts_.emplace_back();
    part.source = source_ + source;
    part.target.name = target_ + target;
    part.target.shape = shape;
    if (gguf_architecture(config_) == "llama") part.heads = heads;
  }
  void add_norm(const std::string& source, const std::string& target, int64_t size) {
    add(source + ".weight", target + ".weight", {size});
    parts_.back().offset = static_cast<float>(config_.norm_offset);
  }
  void add_linear(const std::string& source, const std::string& target, Shape shape, bool bias,
                  int64_t heads = 0) {
    add(source + ".weight", target + ".weight", shape, heads);
    if (bias) add(source + ".bias", target + ".bias", {shape[0]}, heads);
  }

  void add_norms() {
    add_norm("input_layernorm", "attn_norm", config_.hidden);
    if (config_.post_norms) {
      add_norm("post_attention_layernorm", "post_attention_norm", config_.hidden);
      add_norm("pre_feedforward_layernorm", "ffn_norm", config_.hidden);
      add_norm("post_feedforward_layernorm", "post_ffw_norm", config_.hidden);
    } else {
      add_norm("post_attention_layernorm", "ffn_norm", config_.hidden);
    }
  }

  void add_attention() {
    const int64_t q = config_.num_heads * config_.head_size, kv = config_.num_kv_heads * config_.head_size;
    const int64_t hidden = config_.hidden;
    if (config_.fused_projections) {
      add_linear("self_attn.qkv_proj", "attn_qkv", {q + 2 * kv, hidden}, config_.qkv_bias);
    } else {
      add_linear("self_attn.q_proj", "attn_q", {q, hidden}, config_.qkv_bias, config_.num_heads);
      add_linear("self_attn.k_proj", "attn_k", {kv, hidden}, config_.qkv_bias, config_.num_kv_heads);
      add_linear("self_attn.v_proj", "attn_v", {kv, hidden}, config_.qkv_bias);
    }
    if (config_.qk_norm) {
      add_norm("self_attn.q_norm", "attn_q_norm", config_.head_size);
      add_norm("self_attn.k_norm", "attn_k_norm", config_.head_size);
    }
    add_linear("self_attn.o_proj", "attn_output", {hidden, q}, config_.out_bias);
  }

  void add_mlp() {
    const int64_t hidden = config_.hidden, size = config_.intermediate;
    if (config_.fused_projections) {
      add_linear("mlp.gate_up_proj", "ffn_up", {2 * size, hidden}, config_.mlp_bias);
    } else {
      add_linear("mlp.gate_proj", "ffn_gate", {size, hidden}, config_.mlp_bias);
      add_linear("mlp.up_proj", "ffn_up", {size, hidden}, config_.mlp_bias);
    }
    add_linear("mlp.down_proj", "ffn_down", {hidden, size}, config_.mlp_bias);
  }

  /// Adds tables with the divisor of each RoPE frequency, for llama3 and longrope scaling.
  void add_rope_tables() {
    const models::RopeOptions& rope = config_.rope;
    if (rope.type == "llama3") {
      add_table("rope_freqs.weight", llama3_factors(rope, config_.head_size));
    } else if (rope.type == "longrope") {
      add_table("rope_factors_long.weight", rope.long_factor);
      add_table("rope_factors_short.weight", rope.short_factor);
    }
  }
  void add_table(const char* target, const std::vector<double>& values) {
    add("", target, {std::ssize(values)});
    for (const double value : values) parts_.back().values.push_back(static_cast<float>(value));
  }

  const DecoderConfig& config_;
  std::string source_, target_;
  std::vector<GgufPart> parts_;
};

}  // namespace

std::string gguf_architecture(const DecoderConfig& config) {
  return config.family == "mistral" ? "llama" : config.family;
}

std::vector<GgufPart> gguf_parts(const DecoderConfig& config) { return TensorList(config).take(); }

int64_t gemma2_query_size(const DecoderConfig& config) {
  return config.num_layers == kGemma27bLayers ? config.hidden / config.num_heads : config.head_size;
}

int64_t interleaved_row(int64_t row, int64_t num_rows, int64_t num_heads) {
  const int64_t head_size = num_rows / num_heads, half = head_size / 2;
  const int64_t head = row / head_size, at = row % head_size;
  return head * head_size + at % half * 2 + at / half;
}

std::vector<double> llama3_factors(const models::RopeOptions& rope, int64_t head_size) {
  models::RopeOptions plain = rope;
  plain.type = "default";
  std::vector<double> factors = models::rope_table(plain, head_size).inv_freq;
  const std::vector<double> scaled = models::rope_table(rope, head_size).inv_freq;
  for (size_t i = 0; i < factors.size(); ++i) factors[i] /= scaled[i];
  return factors;
}

}  // namespace hearth::hub
