#pragma once

#include <string_view>

#include "cost/device.h"
#include "ir/op_def.h"

namespace hearth::cost {

/// Returns the fraction of a GPU's matmul rate that a kernel reaches when all compute units have work.
/// `half`: its inputs have 16 bits.
double kernel_share(const ir::Cost& cost, bool half, Vendor vendor);

/// Measured rates of an op relative to the model: of convolutions that are no matmul, and of memory traffic.
struct OpRates {
  double conv = 1, bandwidth = 1;
};
OpRates op_rates(std::string_view op, Vendor vendor);

}  // namespace hearth::cost
