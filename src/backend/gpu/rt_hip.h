#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__HIP_DEVICE_COMPILE__) && !defined(__GFX10__) && !defined(__GFX11__) && !defined(__GFX12__)
#error "Hearth's kernels are for GPUs whose warps have 32 lanes: gfx10, gfx11 and gfx12"
#endif

/// Implements rt.h for hipcc.
#define RT_DEVICE __device__ __forceinline__
#define RT_UNROLL _Pragma("unroll")
#define RT_NO_UNROLL _Pragma("unroll 1")
#define RT_SHARED(name, ...)         \
  using name##_shared = __VA_ARGS__; \
  __shared__ name##_shared name
#define RT_DYNAMIC_SHARED(T, name)                                                        \
  extern __shared__ __attribute__((aligned(16))) unsigned char rt_dynamic_shared_bytes[]; \
  T* name = reinterpret_cast<T*>(rt_dynamic_shared_bytes)

namespace hearth::rt {

inline constexpr int kWarp = 32;
using Dim3 = dim3;
/// A vector type of the compiler; a struct would be placed in scratch memory instead of registers.
using Word16 = uint32_t __attribute__((ext_vector_type(4)));
using Word8 = uint32_t __attribute__((ext_vector_type(2)));
using Word4 = uint32_t __attribute__((may_alias));

RT_DEVICE float f16_bits_to_float(uint16_t bits) {
  _Float16 half;
  __builtin_memcpy(&half, &bits, sizeof half);
  return static_cast<float>(half);
}
RT_DEVICE uint16_t float_to_f16_bits(float value) {
  const auto half = static_cast<_Float16>(value);
  uint16_t bits;
  __builtin_memcpy(&bits, &half, sizeof bits);
  return bits;
}

RT_DEVICE float multiply_then_add(float a, float b, float c) {
#pragma clang fp contract(off)
  const float product = a * b;
  return product + c;
}

RT_DEVICE float fast_exp(float x) { return __expf(x); }
RT_DEVICE float fast_exp2(float x) { return __builtin_amdgcn_exp2f(x); }
RT_DEVICE float larger(float a, float b) { return a > b ? a : b; }

RT_DEVICE int lane() { return static_cast<int>(__lane_id()); }
RT_DEVICE int warp() {
  const int number = __builtin_amdgcn_readfirstlane(static_cast<int>(threadIdx.x) / 32);
  __builtin_assume(number >= 0);
  return number;
}
RT_DEVICE void sync_block() { __syncthreads(); }
/// Orders the shared memory accesses of a warp. Needs no barrier, because the lanes run in lockstep.
RT_DEVICE void sync_warp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
template <typename T>
RT_DEVICE T shuffle(T value, int from) {
  return __shfl(value, from, kWarp);
}
template <typename T>
RT_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor(value, mask, kWarp);
}
template <typename T>
RT_DEVICE T shuffle_down(T value, int by) {
  return __shfl_down(value, by, kWarp);
}
RT_DEVICE uint32_t ballot(bool yes) { return static_cast<uint32_t>(__ballot(yes ? 1 : 0)); }
RT_DEVICE int lowest_bit(uint32_t mask) { return __ffs(static_cast<int>(mask)) - 1; }

}  // namespace hearth::rt

#include "backend/gpu/rt_launch.h"
