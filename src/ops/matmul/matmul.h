#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// y = act(op(a) op(b) + bias + residual): sums in f32; out_dtype, if given, replaces the dtype of a.
extern const ir::OpDef matmul;

}  // namespace hearth::ops
