#pragma once

/// The language that kernels are written in: one source for hipcc, nvcc and, without a GPU, the host
/// compiler.
///
///   template <typename T>
///   __global__ void __launch_bounds__(256) scale(const T* in, T* out, int64_t count, float factor);
///   rt::launch(scale<rt::bf16>, {blocks, 256}, stream, in, out, count, factor);
///
/// As in HIP and CUDA: __global__, __launch_bounds__, threadIdx, blockIdx, blockDim, gridDim, expf and
/// similar. The names below replace what differs between the two or what the emulator must intercept:
///   RT_DEVICE                    a function that kernels call
///   RT_UNROLL                    before a loop of constant length whose iterations must be unrolled into
///                                separate registers
///   RT_NO_UNROLL                 before a loop that must not be unrolled
///   RT_SHARED(name, T)           a shared variable of the block, such as RT_SHARED(rows, float[16][33]);
///                                uninitialized
///   RT_DYNAMIC_SHARED(T, name)   T* to the dynamic shared memory that the launch requested
///   rt::sync_block()             barrier of all threads of the block; one per source line
///   rt::sync_warp()              orders memory accesses between a warp's lanes
///   rt::shuffle(v, lane), shuffle_xor(v, mask), shuffle_down(v, by), ballot(p), lane()
///                                over all 32 lanes of a warp; v has 4 or 8 bytes; no memory ordering
///   rt::warp()                   index of this warp in its block, along x, in a scalar (per-warp) register
///   rt::lowest_bit(mask)         index of the lowest set bit; mask must not be 0
///   rt::multiply_then_add(a, b, c)   a b + c without fusing: rounded after each operation
///   rt::fast_exp(x), fast_exp2(x)   the GPU's instruction: relative error |x| 2^-23, subnormal results are 0
///   rt::larger(a, b)             the maximum of two numbers; of a NaN and a number, either
///   rt::bf16, rt::f16            two bytes; to_float(v), from_float<T>(f) rounds to nearest even
///   rt::Vec<T, n>                n adjacent elements; load and store use one 4, 8 or 16 byte access if the
///                                elements fill it
/// A warp has 32 lanes on every GPU.
#if defined(__HIPCC__)
#include "backend/gpu/rt_hip.h"
#elif defined(__CUDACC__)
#include "backend/gpu/rt_cuda.h"
#else
#include "backend/gpu/rt_emu.h"
#endif

#include "backend/gpu/rt_numbers.h"
#include "backend/gpu/rt_reduce.h"
