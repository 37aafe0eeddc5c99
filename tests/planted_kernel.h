#pragma once

#include "backend/gpu/modules.h"
#include "ops/gpu_support.h"

namespace hearth {

/// While it lives, emulated GPUs have that kernel for an op in place of their own.
class PlantedKernel {
 public:
  PlantedKernel(std::string_view op, ir::Kernel (*kernel)(const ir::NodeView&))
      : own_(*gpu::emulator().find_kernel(op)) {
    ops::GpuKernels({{.op = own_.op, .one = kernel}});
  }
  ~PlantedKernel() { ops::GpuKernels({own_}); }
  PlantedKernel(const PlantedKernel&) = delete;
  PlantedKernel& operator=(const PlantedKernel&) = delete;

 private:
  ir::GpuKernel own_;
};

}  // namespace hearth
