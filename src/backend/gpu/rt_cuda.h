#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

/// Implements rt.h for nvcc.
#define RT_DEVICE __device__ __forceinline__
#define RT_UNROLL _Pragma("unroll")
#define RT_NO_UNROLL _Pragma("unroll 1")
#define RT_SHARED(name, ...)         \
  using name##_shared = __VA_ARGS__; \
  __shared__ name##_shared name
#define RT_DYNAMIC_SHARED(T, name)                                         \
  extern __shared__ __align__(16) unsigned char rt_dynamic_shared_bytes[]; \
  T* name = reinterpret_cast<T*>(rt_dynamic_shared_bytes)

namespace hearth::rt {

inline constexpr int kWarp = 32;
inline constexpr unsigned kEveryLane = 0xffffffffU;
using Dim3 = dim3;
using Word4 = uint32_t;
using Word8 = uint2;
using Word16 = uint4;

RT_DEVICE float f16_bits_to_float(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
RT_DEVICE uint16_t float_to_f16_bits(float value) { return __half_as_ushort(__float2half_rn(value)); }

/// Rounds two floats to nearest even and packs them; `low` gets the lower half of the word.
RT_DEVICE uint32_t pack_bf16(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
RT_DEVICE uint32_t pack_f16(float low, float high) {
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

RT_DEVICE float multiply_then_add(float a, float b, float c) { return __fadd_rn(__fmul_rn(a, b), c); }

RT_DEVICE float fast_exp2(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
RT_DEVICE float fast_exp(float x) { return fast_exp2(x * 1.44269504F); }
RT_DEVICE float larger(float a, float b) { return fmaxf(a, b); }
RT_DEVICE int lane() {
  int number;
  asm("mov.u32 %0, %%laneid;" : "=r"(number));
  return number;
}
RT_DEVICE int warp() { return static_cast<int>(threadIdx.x) / 32; }
RT_DEVICE void sync_block() { __syncthreads(); }
RT_DEVICE void sync_warp() { __syncwarp(); }
template <typename T>
RT_DEVICE T shuffle(T value, int from) {
  return __shfl_sync(kEveryLane, value, from);
}
template <typename T>
RT_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(kEveryLane, value, mask);
}
template <typename T>
RT_DEVICE T shuffle_down(T value, int by) {
  return __shfl_down_sync(kEveryLane, value, by);
}
RT_DEVICE uint32_t ballot(bool yes) { return __ballot_sync(kEveryLane, yes); }
RT_DEVICE int lowest_bit(uint32_t mask) { return __ffs(static_cast<int>(mask)) - 1; }

}  // namespace hearth::rt

#include "backend/gpu/rt_launch.h"
