#pragma once

#include "cost/device.h"
#include "ir/op_def.h"

namespace hearth::cost {

/// Fraction of a GPU's matmul rate that a kernel reaches while all units work; `half`: on 16-bit inputs.
double kernel_share(const ir::Cost& cost, bool half, Vendor vendor);

}  // namespace hearth::cost
