#pragma once

#include "models/decoder/config.h"
#include "nn/module.h"

namespace hearth::models {

/// Rows of tokens, one after the other: N = num_rows * context.
struct DecoderInputs {
  ir::ValueId tokens = ir::kNone;     ///< i32 [N]
  ir::ValueId positions = ir::kNone;  ///< i32 [N]
  /// i32: the largest position of the whole sequences, where longrope needs it; none: it is in `positions`.
  ir::ValueId last_position = ir::kNone;
  /// i32 [N]: where in its row the document of a token starts; none: every row is one document.
  ir::ValueId starts = ir::kNone;
  /// f32 [heads, context, context]: what is added to the scores of a query (rows) and a key, of each row;
  /// none: a token sees those before it. Without slots, windows and documents.
  ir::ValueId bias = ir::kNone;
  int64_t num_rows = 1;
  int64_t context = 0;
  /// With slots, the one row continues from what a cache of so many keys and values holds; 0: rows stand
  /// alone.
  int64_t cache_slots = 0;

  /// How far apart two tokens that see each other may be.
  int64_t reach() const { return cache_slots > 0 ? cache_slots : context; }
};

struct DecoderOutputs {
  ir::ValueId hidden = ir::kNone;  ///< [N, hidden], after the last norm
  ir::ValueId head = ir::kNone;    ///< f32 [vocab, hidden]: logits are hidden * head^T
};

/// Grows a decoder under transformers' names ("model.layers.0.self_attn.q_proj.weight"). UserError for a
/// reach that check_context refuses.
DecoderOutputs build_decoder(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in);

/// Grows layer number `layer` alone, under names from "self_attn.q_proj.weight" on: x [N, hidden] to the
/// same. It reads no tokens.
ir::ValueId build_decoder_layer(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in,
                                ir::ValueId x, int64_t layer);

}  // namespace hearth::models
