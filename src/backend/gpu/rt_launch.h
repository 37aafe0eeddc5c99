#pragma once

#include "backend/gpu/launched.h"

/// Implements rt::launch for hipcc and nvcc.
namespace hearth::rt {

#if defined(__HIPCC__)
using NativeStream = hipStream_t;
inline int last_error() { return hipGetLastError(); }
inline void allow_shared_bytes(const void*, size_t) {}
#else
using NativeStream = cudaStream_t;
inline int last_error() { return cudaGetLastError(); }
/// Bytes of dynamic shared memory above which CUDA requires an opt-in for each kernel.
inline constexpr size_t kSharedBytesUnasked = 48 * 1024;
inline void allow_shared_bytes(const void* kernel, size_t num_bytes) {
  if (num_bytes <= kSharedBytesUnasked) return;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(num_bytes));
}
#endif

/// Grid and block dimensions, and bytes of RT_DYNAMIC_SHARED.
struct Shape {
  dim3 blocks;
  dim3 threads;
  int64_t shared_bytes;

  Shape(int64_t num_blocks, int64_t num_threads, int64_t dynamic_shared_bytes = 0)
      : Shape(dim3(static_cast<unsigned>(num_blocks)), dim3(static_cast<unsigned>(num_threads)),
              dynamic_shared_bytes) {}
  Shape(dim3 grid, dim3 block, int64_t dynamic_shared_bytes = 0)
      : blocks(grid), threads(block), shared_bytes(dynamic_shared_bytes) {}
};

/// Queues the kernel on the stream. Errors are reported when the stream is synchronized.
template <typename... P>
void launch(void (*kernel)(P...), const Shape& shape, void* stream, std::type_identity_t<P>... args) {
  // Clears an earlier error of a library, which would otherwise be reported for this launch.
  static_cast<void>(last_error());
  const auto shared_bytes = static_cast<size_t>(shape.shared_bytes);
  allow_shared_bytes(reinterpret_cast<const void*>(kernel), shared_bytes);
  kernel<<<shape.blocks, shape.threads, shared_bytes, static_cast<NativeStream>(stream)>>>(args...);
  gpu::launched(last_error());
}

}  // namespace hearth::rt
