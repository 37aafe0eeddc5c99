#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Zeroes elements with probability `rate` and scales the others to keep the mean. The mask follows from
/// Philox of (seed, salt, counter i64 [2] = {step, micro-batch}, element index).
extern const ir::OpDef dropout;

}  // namespace hearth::ops
