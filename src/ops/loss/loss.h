#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Losses per sample over the last axis of logits [N, K]; labels are i32 [N]. A label outside [0, K) gives
/// NaN.
extern const ir::OpDef softmax_cross_entropy;
extern const ir::OpDef softmax_cross_entropy_grad;
extern const ir::OpDef softmax;
extern const ir::OpDef softmax_grad;
extern const ir::OpDef count_correct;

}  // namespace hearth::ops
