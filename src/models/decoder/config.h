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

/// Several MLPs of which a router picks some for every token (arXiv 2101.03961, 2401.04088).
struct ExpertsConfig {
  int64_t count = 0;           ///< 0: one MLP per layer
  int64_t per_token = 0;       ///< how many see a token
  int64_t intermediate = 0;    ///< width of each
  bool normalized = false;     ///< the weights of those that see a token add up to 1
  bool mixtral_names = false;  ///< block_sparse_moe and w1, w3, w2 in place of mlp and gate, up, down
  std::vector<bool> layers;    ///< which layers have them
};

/// A decoder of the Llama shape, as a config.json of transformers (version 4 or 5) describes it. One struct
/// for every family: what differs is data.
struct DecoderConfig {
  /// How the heads of a layer learn of positions.
  enum class Positions : uint8_t { none, rope, local_rope };
  std::string family;  ///< model_type
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
  bool qk_norm = false;            ///< RMS norm of every head's query and key
  bool qk_norm_whole = false;      ///< or of a token's queries and keys as a whole
  bool fused_projections = false;  ///< qkv_proj and gate_up_proj are one matrix each
  bool gated_mlp = true;           ///< else the activation lies between two matrices
  bool transposed = false;         ///< files hold the weights of linear layers as [in, out]
  bool layer_norms = false;        ///< with means and biases, in place of RMS norms
  bool learned_positions = false;  ///< a table of max_positions rows is added to the embedding
  bool pre_norms = true;           ///< norms before attention and MLP
  bool post_norms = false;         ///< norms after attention and MLP
  double norm_offset = 0;          ///< norms multiply by offset + weight
  double embedding_scale = 1;
  double residual_scale = 1;         ///< attention and MLP are multiplied by this before they are added
  double hidden_scale = 1;           ///< what the head reads is multiplied by this
  double init_normal = 0.02;         ///< standard deviation of a new model's weights
  double branch_init_normal = 0;     ///< of the last ones of attention and MLP; 0: the same
  std::string activation = "silu";   ///< of the gate: silu, gelu or gelu_tanh
  double attention_scale = 0;        ///< queries times keys are multiplied by this
  bool scale_by_layer = false;       ///< and divided by the layer's number, from 1
  double attention_cap = 0;          ///< scores become cap * tanh(score / cap); 0: off
  double head_cap = 0;               ///< the same for logits
  std::vector<int64_t> windows;      ///< per layer: how many positions back are seen, 0: all
  std::vector<Positions> positions;  ///< per layer; empty: rope in all
  std::vector<int64_t> eos_ids;
  ExpertsConfig experts;
  RopeOptions rope;
  std::optional<RopeOptions> local_rope;  ///< of layers that see a window, where they have their own
  /// Keys and values of dropout rates in config.json, which training ignores.
  std::vector<std::pair<std::string, double>> dropouts;
};

/// The longest config.json that is read.
inline constexpr int64_t kMaxConfigBytes = 1 << 22;

/// Reads a config; `where` names it in messages. UserError for an unknown family, a missing or absurd value.
DecoderConfig parse_decoder_config(std::string_view json, const std::string& where);
DecoderConfig read_decoder_config(const fs::path& file);
/// Returns the text of a config.json. UserError if the file does not exist, or if it or a
/// quantize_config.json in the same folder describes quantized weights.
std::string read_decoder_json(const fs::path& config_file);

/// A sentence on a context of more tokens than the model has positions for, which it computes nonetheless;
/// empty where it is none.
std::string context_note(const DecoderConfig& config, int64_t context);

/// Returns a sentence on the dropout rates of config.json, which training ignores; empty if there are none.
std::string dropout_note(const DecoderConfig& config);

/// UserError where the model has no positions for a context of so many tokens.
void check_context(const DecoderConfig& config, int64_t context);

/// The same config with the rotary positions, the dtype and the number of experts under the keys of both
/// versions of transformers: a reader of the older ones would silently fall back to theta = 10000.
nlohmann::ordered_json with_both_versions(nlohmann::ordered_json config, const DecoderConfig& decoder);

}  // namespace hearth::models
