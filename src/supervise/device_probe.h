#pragma once

#include <string>

#include "exec/device/gpu_choice.h"

namespace hearth::supervise {

/// Gives a GPU memory and one kernel, and compares what that makes with the known result; what came
/// instead, or nothing. UserError where there is no such GPU or it does not even open. For a process of its
/// own: what a GPU does to the one that opens it is not known.
std::string probe_gpu(const exec::GpuWish& wish);

}  // namespace hearth::supervise
