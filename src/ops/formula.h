#pragma once

/// Marks a formula that the processor's kernels and those of GPUs share.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define HEARTH_FORMULA __host__ __device__
#else
#define HEARTH_FORMULA
#endif
