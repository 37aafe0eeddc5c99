#pragma once

#include <string>

#include "exec/device/gpu_choice.h"

namespace hearth::supervise {

/// Tests a GPU: allocates memory, runs one kernel and compares the result with float64. Returns what was
/// wrong; empty if nothing. Throws a UserError if there is no such GPU or it cannot be opened. Call it in a
/// separate process, since a faulty GPU may hang or kill the process that opens it.
std::string probe_gpu(const exec::GpuRequest& wish);

}  // namespace hearth::supervise
