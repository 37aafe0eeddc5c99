#pragma once

#include "models/decoder/config.h"
#include "nn/module.h"

namespace hearth::models {

/// Inputs of a decoder: num_rows rows of `context` tokens, N = num_rows * context.
struct DecoderInputs {
  ir::ValueId tokens = ir::kNone;     ///< i32 [N]
  ir::ValueId positions = ir::kNone;  ///< i32 [N]
  /// i32 scalar: max position in the sequences including cached tokens, from which LongRoPE selects its
  /// factors; kNone: the max of `positions`.
  ir::ValueId last_position = ir::kNone;
  /// i32 [N]: for each token, the index within its row at which the token's document begins; kNone: every row
  /// is one document.
  ir::ValueId starts = ir::kNone;
  /// f32 [heads, context, context]: bias added to the attention scores of a query (rows) and a key (columns),
  /// for every row of the batch; kNone: causal attention. Only without cache, windows and documents.
  ir::ValueId bias = ir::kNone;
  int64_t num_rows = 1;
  int64_t context = 0;
  /// Size of the KV cache of a sequence in tokens; num_rows is then 1, and each token continues the cached
  /// tokens of its sequence. 0: no cache.
  int64_t cache_slots = 0;
  int64_t cache_sequences = 1;        ///< number of sequences in the KV cache
  ir::ValueId sequences = ir::kNone;  ///< i32 [N]: index of each token's sequence; only with a cache

  /// Returns the max number of tokens that a token can attend to.
  int64_t reach() const { return cache_slots > 0 ? cache_slots : context; }
};

/// Outputs of a decoder.
struct DecoderOutputs {
  ir::ValueId hidden = ir::kNone;  ///< [N, hidden], after the final norm
  ir::ValueId head = ir::kNone;    ///< f32 [vocab, hidden]: logits are hidden * head^T
};

/// Builds a decoder with transformers' tensor names ("model.layers.0.self_attn.q_proj.weight"). Throws a
/// UserError if the model has too few positions for reach() (check_context).
DecoderOutputs build_decoder(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in);

/// Builds a decoder for one token, for its tensors, channels and costs.
DecoderOutputs build_decoder_for_one_token(nn::Builder& builder, const DecoderConfig& config);

/// Builds the input of the first layer: embeddings of tokens and, if the model has them, of positions, [N,
/// hidden].
ir::ValueId build_decoder_input(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in);
/// Returns the name of a layer, which is the prefix of its tensors' names: "model.layers.0".
std::string decoder_layer_name(const DecoderConfig& config, int64_t layer);

/// Builds a single layer, with tensor names relative to the layer ("self_attn.q_proj.weight"). `x` and the
/// result: [N, hidden]. DecoderInputs::tokens is not used.
ir::ValueId build_decoder_layer(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in,
                                ir::ValueId x, int64_t layer);

}  // namespace hearth::models
