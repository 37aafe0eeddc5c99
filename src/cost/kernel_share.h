#pragma once

#include "cost/device.h"
#include "ir/op_def.h"

namespace hearth::cost {

/// Returns the fraction of a GPU's matmul rate that a kernel reaches when all compute units have work.
/// `half`: its inputs have 16 bits.
double kernel_share(const ir::Cost& cost, bool half, Vendor vendor);

}  // namespace hearth::cost
