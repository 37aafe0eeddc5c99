#pragma once

#include "models/decoder/config.h"
#include "nn/module.h"

namespace hearth::models {

/// Inputs of a decoder: num_rows rows of `context` tokens, N = num_rows * context.
struct DecoderInputs {
  ir::ValueId tokens = ir::kNone;     ///< i32 [N]
  ir::ValueId positions = ir::kNone;  ///< i32 [N]
  /// i32 scalar: max position of the full sequences, which longrope needs; kNone: it is the max of
  /// `positions`.
  ir::ValueId last_position = ir::kNone;
  /// i32 [N]: index in its row of the first token of a token's document; kNone: every row is one document.
  ir::ValueId starts = ir::kNone;
  /// f32 [heads, context, context]: bias added to the attention scores of a query (rows) and a key (columns),
  /// for every row of the batch; kNone: causal attention. Only without cache, windows and documents.
  ir::ValueId bias = ir::kNone;
  int64_t num_rows = 1;
  int64_t context = 0;
  /// Size of the key-value cache: the one row continues the cached tokens; 0: no cache.
  int64_t cache_slots = 0;

  /// Returns the max distance between two tokens that attend to each other.
  int64_t reach() const { return cache_slots > 0 ? cache_slots : context; }
};

/// Outputs of a decoder.
struct DecoderOutputs {
  ir::ValueId hidden = ir::kNone;  ///< [N, hidden], after the final norm
  ir::ValueId head = ir::kNone;    ///< f32 [vocab, hidden]: logits are hidden * head^T
};

/// Builds a decoder with transformers' names ("model.layers.0.self_attn.q_proj.weight"). Throws UserError if
/// check_context rejects the reach.
DecoderOutputs build_decoder(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in);

/// Builds a single layer, with names below the layer ("self_attn.q_proj.weight"): x and the result are [N,
/// hidden]. Does not read DecoderInputs::tokens.
ir::ValueId build_decoder_layer(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in,
                                ir::ValueId x, int64_t layer);

}  // namespace hearth::models
