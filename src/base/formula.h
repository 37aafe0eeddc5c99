#pragma once

/// Marks a function that CPU and GPU kernels share (__host__ __device__ in GPU compilers).
#if defined(__CUDACC__) || defined(__HIPCC__)
#define HEARTH_FORMULA __host__ __device__
#else
#define HEARTH_FORMULA
#endif
