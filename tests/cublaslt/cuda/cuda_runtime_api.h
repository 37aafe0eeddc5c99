// Declares the part of CUDA's runtime that the headers of src/backend/gpu/vendor use.
#pragma once

#include <cstddef>

extern "C" {

typedef enum {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidDeviceFunction = 98,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorUnsupportedPtxVersion = 222,
} cudaError_t;
typedef struct CUstream_st* cudaStream_t;

cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetLastError();
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* memory);
constexpr unsigned cudaHostAllocPortable = 1;

}  // extern "C"
