#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Rounds weights to the values that a format of base/block_format.h can store (quantization-aware training,
/// Jacob et al. 2017, arXiv 1712.05877). The gradient is passed on unchanged (straight-through estimator,
/// Bengio et al. 2013, arXiv 1308.3432): scales follow the largest magnitude, so that no weight is out of
/// range.
extern const ir::OpDef fake_quantize;

}  // namespace hearth::ops
