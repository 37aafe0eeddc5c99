// Entry point of a GPU module, the shared library with all GPU kernels. The GpuKernels objects of each
// *_gpu.cpp register kernels in one table when the library is loaded.
#include <map>

#include "backend/gpu/driver.h"
#include "ops/gpu_support.h"

namespace hearth::ops {
namespace {

std::map<std::string_view, ir::GpuKernel>& table() {
  static std::map<std::string_view, ir::GpuKernel> all;
  return all;
}

const ir::GpuKernel* find_kernel(std::string_view op) {
  const auto found = table().find(op);
  return found == table().end() ? nullptr : &found->second;
}

const gpu::Driver& driver() {
  static const std::unique_ptr<gpu::Driver> one = gpu::make_driver(find_kernel);
  return *one;
}

}  // namespace

GpuKernels::GpuKernels(std::initializer_list<ir::GpuKernel> kernels) {
  for (const ir::GpuKernel& kernel : kernels) table()[kernel.op] = kernel;
}

}  // namespace hearth::ops

extern "C" const hearth::gpu::Module hearth_gpu_module = {hearth::gpu::kModuleLayout, hearth::ops::driver};
