#pragma once

/// Names that the HIP and CUDA runtimes share except for their prefix: RUNTIME(Malloc) is hipMalloc or
/// cudaMalloc.
#if defined(HEARTH_GPU_HIP)
#define __HIP_PLATFORM_AMD__  // NOLINT(bugprone-reserved-identifier): HIP requires it.
#include <hip/hip_runtime_api.h>
#define RUNTIME(name) hip##name
#elif defined(HEARTH_GPU_CUDA)
#include <cuda_runtime_api.h>
#define RUNTIME(name) cuda##name
#else
#error "expected HEARTH_GPU_HIP or HEARTH_GPU_CUDA"
#endif

#include <fmt/format.h>

#include <string>

/// Common names for entities that have different names in the two runtimes.
namespace hearth::gpu::vendor {

using Result = RUNTIME(Error_t);
using NativeStream = RUNTIME(Stream_t);

#if defined(HEARTH_GPU_HIP)

inline constexpr const char* kName = "HIP";
inline constexpr Result kOutOfMemory = hipErrorOutOfMemory;
/// Results of the first launch if the module has no code that the runtime can load for the GPU.
inline constexpr Result kNoCode[] = {hipErrorInvalidDeviceFunction, hipErrorInvalidImage,
                                     hipErrorNoBinaryForGpu};
/// Coherent memory: the default may keep what the GPU wrote in its caches until a kernel's end.
inline Result allocate_host(void** memory, size_t num_bytes) {
  return hipHostMalloc(memory, num_bytes, hipHostMallocPortable | hipHostMallocCoherent);
}
inline Result release_host(void* memory) { return hipHostFree(memory); }
inline std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000000, version / 100000 % 100, version % 100000);
}

#else

inline constexpr const char* kName = "CUDA";
inline constexpr Result kOutOfMemory = cudaErrorMemoryAllocation;
inline constexpr Result kNoCode[] = {cudaErrorInvalidDeviceFunction, cudaErrorNoKernelImageForDevice,
                                     cudaErrorUnsupportedPtxVersion};
inline Result allocate_host(void** memory, size_t num_bytes) {
  return cudaHostAlloc(memory, num_bytes, cudaHostAllocPortable);
}
inline Result release_host(void* memory) { return cudaFreeHost(memory); }
inline std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version / 10 % 100);
}

#endif

}  // namespace hearth::gpu::vendor
