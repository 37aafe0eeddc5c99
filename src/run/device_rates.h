#pragma once

#include <string>

#include "distributed/process_group.h"
#include "engine/engine.h"

namespace hearth::run {

/// Sets options.device, the cost model's rates, to those of the GPU in the options, which is looked up by the
/// name that its driver reports (cost::nearest_gpu). Leaves the CPU and emulated GPUs unchanged. Returns a
/// note of one sentence if the GPU is unknown, otherwise "". `group`: if not null, a collective call; all
/// workers use the rates of the slowest GPU, so that they plan the same program. Opens the driver: call after
/// fork().
std::string set_device_rates(engine::EngineOptions& options, distributed::ProcessGroup* group = nullptr);
/// Returns the rates of the slowest GPU of all workers; null for the CPU and emulated GPUs. Collective call.
const cost::Device* slowest_gpu(const exec::GpuRequest& local, distributed::ProcessGroup& group);

/// Returns a rate as a fraction of the vendor's peak for dense matmuls in `precision`; 0 if the peak is
/// unknown or `gpu` is null (CPU).
double fraction_of_peak(double flops_per_second, const gpu::DeviceInfo* gpu, DType precision);

}  // namespace hearth::run
