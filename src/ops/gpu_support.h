#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "backend/gpu/device.h"
#include "backend/gpu/rt.h"
#include "ir/gpu_kernel.h"

/// For the sources of kernels for GPUs (*_gpu.cpp), which hipcc and nvcc compile too.
namespace hearth::ops {

/// Threads of a block that works on a row, or on a run of elements.
inline constexpr int kBlockThreads = 256;

inline int64_t divided_up(int64_t count, int64_t by) { return (count + by - 1) / by; }
/// Blocks of kBlockThreads that go through `count` elements in strides of the grid.
inline int64_t num_stride_blocks(int64_t count) {
  return std::clamp<int64_t>(divided_up(count, kBlockThreads), 1, 1024);
}

/// Where a thread of such a grid begins, and how far apart its elements are.
RT_DEVICE int64_t first_element() { return static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; }
RT_DEVICE int64_t element_stride() { return static_cast<int64_t>(gridDim.x) * kBlockThreads; }

[[noreturn]] void refuse_storage_type(DType dtype);
/// UserError: GPUs take `what` up to `most` only.
[[noreturn]] void refuse_on_gpu(const char* what, int64_t most, int64_t got);

/// What body(T()) returns, T being the type that holds a storage dtype on a GPU.
template <typename Body>
ir::Kernel with_storage_type(DType dtype, Body body) {
  if (dtype == DType::bf16) return body(rt::bf16());
  if (dtype == DType::f16) return body(rt::f16());
  if (dtype == DType::f32) return body(float());
  refuse_storage_type(dtype);
}

/// Makes kernels known to the module that the source belongs to, from a variable outside of functions.
class GpuKernels {
 public:
  GpuKernels(std::initializer_list<ir::GpuKernel> kernels);
};

/// Input or output `index` as an array of T.
template <typename T>
const T* input_of(const ir::KernelArgs& args, size_t index) {
  return static_cast<const T*>(args.in[index]);
}
template <typename T>
T* output_of(const ir::KernelArgs& args, size_t index) {
  return static_cast<T*>(args.out[index]);
}

}  // namespace hearth::ops
