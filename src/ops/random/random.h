#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Sets elements to 0 with probability `rate` and divides the others by 1 - rate, which preserves the mean.
/// The mask is computed by Philox from seed, salt, the input counter i64 [2] = {step, micro-batch} and the
/// element index.
extern const ir::OpDef dropout;

}  // namespace hearth::ops
