#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "models/decoder/rope.h"

namespace hearth::models {

/// Mixture of experts (arXiv 2101.03961, 2401.04088): several MLPs per layer, of which a router picks some
/// for every token.
struct ExpertsConfig {
  int64_t count = 0;           ///< number of experts; 0: a dense MLP per layer
  int64_t per_token = 0;       ///< number of experts per token
  int64_t intermediate = 0;    ///< hidden width of each expert
  bool normalized = false;     ///< true if the router weights of a token's experts are scaled to sum to 1
  bool mixtral_names = false;  ///< true if tensors have Mixtral's names block_sparse_moe and w1, w3, w2
  std::vector<bool> layers;    ///< true for layers with experts
};

/// Configuration of a Llama-like decoder, as described by config.json of transformers (version 4 or 5).
/// Differences between families are data in this struct.
struct DecoderConfig {
  /// Position encoding of a layer's queries and keys.
  enum class Positions : uint8_t { none, rope, local_rope };
  std::string family;  ///< model_type in config.json
  int64_t vocab_size = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_size = 0;
  int64_t max_positions = 0;
  double norm_eps = 1e-6;
  bool tied_head = false;
  bool qkv_bias = false;
  bool out_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;        ///< true for an RMS norm of each head's query and key (QK norm)
  bool qk_norm_whole = false;  ///< true for an RMS norm over all heads of a token's query and key together
  /// True if queries, keys and values share one matrix, and gate and up projection share one.
  bool fused_projections = false;
  bool gated_mlp = true;  ///< false: the MLP is two matrices with the activation between them, without a gate
  bool transposed = false;   ///< true if files store the weights of linear layers as [in, out]
  bool layer_norms = false;  ///< true for layer norms with bias instead of RMS norms
  /// True if a table [max_positions, hidden] of position embeddings is added to the token embeddings.
  bool learned_positions = false;
  bool pre_norms = true;    ///< true for norms before attention and MLP
  bool post_norms = false;  ///< true for norms after attention and MLP
  double norm_offset = 0;   ///< norms multiply by norm_offset + weight
  double embedding_scale = 1;
  /// Factor of the outputs of attention and MLP before the residual addition.
  double residual_scale = 1;
  double hidden_scale = 1;    ///< factor of the input of the output head
  double init_normal = 0.02;  ///< standard deviation of a new model's weights
  /// Standard deviation of a new model's output projections of attention and MLP; 0: init_normal.
  double branch_init_normal = 0;
  std::string activation = "silu";  ///< activation of the MLP: silu, gelu or gelu_tanh
  double attention_scale = 0;       ///< factor of attention scores
  bool scale_by_layer = false;  ///< true if the attention scores of layer i (from 1) are also divided by i
  double attention_cap = 0;  ///< soft cap of attention scores, which become cap * tanh(score / cap); 0: off
  double head_cap = 0;       ///< soft cap of the logits; 0: off
  std::vector<int64_t> windows;      ///< sliding window of each layer in tokens; 0: full attention
  std::vector<Positions> positions;  ///< position encoding of each layer; empty: rope in every layer
  std::vector<int64_t> eos_ids;
  ExpertsConfig experts;
  RopeOptions rope;
  std::optional<RopeOptions> local_rope;  ///< RoPE of layers with a sliding window, if it differs from `rope`
  /// Keys and values of dropout rates in config.json, which training ignores.
  std::vector<std::pair<std::string, double>> dropouts;
};

/// Max size of a config.json, in bytes.
inline constexpr int64_t kMaxConfigBytes = 1 << 22;

/// Reads a config; `where` names it in messages. Throws a UserError for an unknown family, or a missing or
/// invalid value.
DecoderConfig parse_decoder_config(std::string_view json, const std::string& where);
/// Reads a config.json; throws a UserError if it is missing.
DecoderConfig read_decoder_config(const fs::path& file);
/// Returns the text of a config.json. Throws a UserError if the file does not exist, or if its weights are
/// quantized by a method that is not supported.
std::string read_decoder_json(const fs::path& config_file);

/// Returns a warning if `context` exceeds the model's trained positions but can be computed (RoPE); otherwise
/// empty.
std::string context_note(const DecoderConfig& config, int64_t context);

/// Returns a sentence on the dropout rates of config.json, which training ignores; empty if there are none.
std::string dropout_note(const DecoderConfig& config);

/// Throws a UserError if the model has no positions for a context of that many tokens.
void check_context(const DecoderConfig& config, int64_t context);

/// Returns the config with RoPE settings, dtype and number of experts under the keys of both transformers 4
/// and 5. Without them, transformers 4 would silently use rope_theta = 10000.
nlohmann::ordered_json with_both_versions(nlohmann::ordered_json config, const DecoderConfig& decoder);

}  // namespace hearth::models
