#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "cost/device.h"
#include "ir/op_def.h"

namespace hearth::cost {

/// Classes of kernels whose modeled times have a common error.
enum class KernelClass : uint8_t { matmul, attention, convolution, quantized, memory };

/// Fit of a class to published rates on an RX 7900 XTX (bench/calibration.json). `factor`: expected time
/// divided by the bound by counters; `error`: factor by which the time may be longer or shorter.
struct ClassFit {
  KernelClass kernels;
  std::string_view name;
  double factor, error;
};
/// Returns the fits, in the order of KernelClass.
std::span<const ClassFit> class_fits();

/// Range of the expected time of a kernel as multiples of its modeled time (seconds_of).
struct Expectation {
  double low = 1, high = 1;
};
/// Returns the expectation of a kernel. For AMD's GPUs the model is optimistic: it is derived from counters
/// of instructions and leaves out waits for barriers, queues and the instruction cache. `waits_for_memory`:
/// moving its bytes takes longer than computing.
Expectation expectation_of(ir::KernelKind kind, bool waits_for_memory, Vendor vendor);

}  // namespace hearth::cost
