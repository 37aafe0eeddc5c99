#pragma once

#include <string>

#include "distributed/process_group.h"
#include "engine/engine.h"

namespace hearth::run {

/// Sets options.device, the rates of the cost model, to those of the GPU in the options, found by the name
/// that its driver reports (cost::nearest_gpu). Changes nothing for the CPU and emulated GPUs. Returns a
/// sentence for users if the GPU is unknown, otherwise "". With a `group` it is a collective call, after
/// which all workers have the rates of the slowest GPU, so that they plan the same program. Opens the GPU
/// driver, so call it after fork().
std::string set_device_rates(engine::EngineOptions& options, distributed::ProcessGroup* group = nullptr);
/// Returns the rates of the slowest GPU of all workers; null for the CPU and emulated GPUs. Collective call.
const cost::Device* slowest_gpu(const exec::GpuRequest& local, distributed::ProcessGroup& group);

/// Returns `flops_per_second` as a fraction of the peak that the vendor specifies for dense matmuls in
/// these precisions (cost::peak_flops_per_second); 0 if the peak is unknown or `gpu` is null (CPU).
double fraction_of_peak(double flops_per_second, const gpu::DeviceInfo* gpu, DType precision,
                        MatmulPrecision matmul_precision);

}  // namespace hearth::run
