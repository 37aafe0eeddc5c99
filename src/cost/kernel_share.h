#pragma once

#include <string_view>

#include "cost/device.h"
#include "ir/op_def.h"

namespace hearth::cost {

/// Returns the fraction of a GPU's matmul rate that a kernel reaches when all compute units have work.
/// `half`: its inputs have 16 bits.
double kernel_share(const ir::Cost& cost, bool half, Vendor vendor);

/// Measured rates of an op divided by the modeled ones: of the arithmetic of convolutions that do not run as
/// a matmul, and of memory traffic.
struct OpRates {
  double conv = 1, bandwidth = 1;
};
/// Returns the measured rates of an op; 1 if it was not measured.
OpRates op_rates(std::string_view op, Vendor vendor);

}  // namespace hearth::cost
