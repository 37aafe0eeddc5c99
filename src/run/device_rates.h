#pragma once

#include <string>

#include "distributed/process_group.h"
#include "engine/engine.h"

namespace hearth::run {

/// Lets the options plan by the rates of the GPU that they name, found by what its driver calls it
/// (cost::nearest_gpu); a processor and an emulated GPU keep theirs. Returns a sentence where the GPU is not
/// known, else nothing. `group`: every worker calls it, and where their GPUs differ all plan by the slowest,
/// so that their programs agree. Asks the driver: not before a fork.
std::string use_device_rates(engine::EngineOptions& options, distributed::ProcessGroup* group = nullptr);
/// The rates of the slowest of all workers' GPUs; null for a processor and emulated GPUs. Every worker calls
/// it.
const cost::Device* slowest_gpu(const exec::GpuWish& own, distributed::ProcessGroup& group);

/// What share of a GPU's peak by its vendor, of dense matmuls in that precision, a rate of arithmetic is; 0
/// where it is not known, and for a processor (null).
double share_of_peak(double flops_per_second, const gpu::DeviceInfo* gpu, DType precision);

}  // namespace hearth::run
