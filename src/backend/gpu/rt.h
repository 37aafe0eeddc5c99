#pragma once

/// The language that kernels are written in: one source for hipcc, nvcc and, without a GPU, the host
/// compiler.
///
///   template <typename T>
///   __global__ void __launch_bounds__(256) scale(const T* in, T* out, int64_t count, float factor);
///   rt::launch(scale<rt::bf16>, {blocks, 256}, stream, in, out, count, factor);
///
/// As in HIP and CUDA: __global__, __launch_bounds__, threadIdx, blockIdx, blockDim, gridDim, expf and its
/// kind. The rest is named here, because the two differ or the emulator must see it:
///   RT_DEVICE                    a function that kernels call
///   RT_UNROLL                    before a loop of constant length, whose copies must have their own
///                                registers
///   RT_NO_UNROLL                 before one that must stay a loop
///   RT_SHARED(name, T)           a variable of the block, for instance RT_SHARED(rows, float[16][33]); not
///                                set
///   RT_DYNAMIC_SHARED(T, name)   T* to the bytes that the launch asked for
///   rt::sync_block()             barrier of all threads of the block; one per source line
///   rt::sync_warp()              orders the memory of a warp's lanes
///   rt::shuffle(v, lane), shuffle_xor(v, mask), shuffle_down(v, by), ballot(p), lane()
///                                of all 32 lanes of a warp; v has 4 or 8 bytes; they order no memory
///   rt::warp()                   this warp's number in its block, along x, kept once for all of its lanes
///   rt::lowest_bit(mask)         the number of the lowest bit that is set; one must be
///   rt::multiply_then_add(a, b, c)   a b + c, rounded after each
///   rt::fast_exp(x)              by the GPU's instruction: relative error |x| 2^-23, 0 for what is denormal
///   rt::bf16, rt::f16            two bytes; to_float(v), from_float<T>(f) rounds to nearest even
///   rt::Vec<T, n>                n elements side by side; load and store move 4, 8 or 16 bytes at once where
///                                they fill them
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
