#pragma once

#include <string>

#include "exec/device/gpu_choice.h"

namespace hearth::supervise {

/// Tests a GPU: allocates memory, runs one kernel, and compares the result with float64. Returns a
/// description of the failure; empty if there is none. Throws a UserError if there is no such GPU or it
/// cannot be opened. Call this in a separate process, because a faulty GPU may hang or kill the process that
/// opens it.
std::string probe_gpu(const exec::GpuRequest& wish);

}  // namespace hearth::supervise
