#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "backend/gpu/device.h"
#include "backend/gpu/rt.h"
#include "ir/gpu_kernel.h"

/// Helpers for the sources of GPU kernels (*_gpu.cpp), which are compiled by hipcc for AMD and by nvcc for
/// NVIDIA.
namespace hearth::ops {

/// Threads per block in kernels that process a row or a contiguous range of elements.
inline constexpr int kBlockThreads = 256;

/// Returns count / by, rounded up.
inline int64_t ceil_div(int64_t count, int64_t by) { return (count + by - 1) / by; }
/// Returns the number of blocks of kBlockThreads for a grid-stride loop over `count` elements.
inline int64_t num_stride_blocks(int64_t count) {
  return std::clamp<int64_t>(ceil_div(count, kBlockThreads), 1, 1024);
}

/// Returns the index of this thread's first element in a grid-stride loop; element_stride() returns the
/// distance to the thread's next element.
RT_DEVICE int64_t first_element() { return static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x; }
RT_DEVICE int64_t element_stride() { return static_cast<int64_t>(gridDim.x) * kBlockThreads; }

/// Number of T in a 16-byte load or store.
template <typename T>
inline constexpr int kWideMove = 16 / static_cast<int>(sizeof(T));
/// Loads n adjacent elements from index `at`, a multiple of n; elements at or after `end` are zero.
template <int n, typename T>
RT_DEVICE rt::Vec<T, n> load_before(int64_t end, const T* from, int64_t at) {
  if (at + n <= end) return rt::load<T, n>(from + at);
  rt::Vec<T, n> made = {};
  for (int e = 0; e < n && at + e < end; ++e) made.at[e] = from[at + e];
  return made;
}
/// Stores n adjacent elements from index `at`, skipping those at or after `end`.
template <typename T, int n>
RT_DEVICE void store_before(int64_t end, T* to, int64_t at, const rt::Vec<T, n>& value) {
  if (at + n <= end) return rt::store(to + at, value);
  for (int e = 0; e < n && at + e < end; ++e) to[at + e] = value.at[e];
}

/// Throws an InternalError: no GPU kernel supports this dtype.
[[noreturn]] void refuse_storage_type(DType dtype);
/// Throws a UserError: `what` is `got`, but GPUs support at most `limit`.
[[noreturn]] void refuse_on_gpu(const char* what, int64_t limit, int64_t got);

/// Returns body(T()), where T is the GPU type of an element of the dtype: rt::bf16, rt::f16 or float.
template <typename Body>
ir::Kernel with_storage_type(DType dtype, Body body) {
  if (dtype == DType::bf16) return body(rt::bf16());
  if (dtype == DType::f16) return body(rt::f16());
  if (dtype == DType::f32) return body(float());
  refuse_storage_type(dtype);
}

/// Registers the kernels of a source file with the GPU module. Define one at namespace scope: the constructor
/// runs when the module is loaded.
class GpuKernels {
 public:
  GpuKernels(std::initializer_list<ir::GpuKernel> kernels);
};

/// Returns input `index` as an array of T; output_of() returns an output.
template <typename T>
const T* input_of(const ir::KernelArgs& args, size_t index) {
  return static_cast<const T*>(args.in[index]);
}
template <typename T>
T* output_of(const ir::KernelArgs& args, size_t index) {
  return static_cast<T*>(args.out[index]);
}

}  // namespace hearth::ops
