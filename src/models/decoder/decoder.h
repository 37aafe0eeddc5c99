#pragma once

#include "models/decoder/config.h"
#include "nn/module.h"

namespace hearth::models {

/// Rows of tokens, one behind the other: N = num_rows * context.
struct DecoderInputs {
  ir::ValueId tokens = ir::kNone;     ///< i32 [N]
  ir::ValueId positions = ir::kNone;  ///< i32 [N]
  /// i32 [N]: where in its row the document of a token starts; none: every row is one document.
  ir::ValueId starts = ir::kNone;
  int64_t num_rows = 1;
  int64_t context = 0;
};

struct DecoderOutputs {
  ir::ValueId hidden = ir::kNone;  ///< [N, hidden], behind the last norm
  ir::ValueId head = ir::kNone;    ///< f32 [vocab, hidden]: logits are hidden * head^T
};

/// Grows a decoder under transformers' names ("model.layers.0.self_attn.q_proj.weight").
DecoderOutputs build_decoder(nn::Builder& builder, const DecoderConfig& config, const DecoderInputs& in);

}  // namespace hearth::models
