#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

namespace hearth::cpu {
namespace {

#include "backend/cpu/simd/avx512_vec.inc"

/// Adds the dot products of pairs of bf16 (a, b) to f32 (c).
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_dpbf16_ps(c.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}

/// fma(broadcast(*a), b, c) as one instruction with an embedded broadcast.
inline Vec fma_at(const float* a, Vec b, Vec c) {
  __asm__("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(c.v) : "v"(b.v), "m"(*a));
  return c;
}

}  // namespace
}  // namespace hearth::cpu

#include "backend/cpu/simd/product.inc"

namespace hearth::cpu {

SimdKernels with_bf16_pairs(SimdKernels kernels) {
  kernels.isa = "avx512_bf16";
  kernels.gemm_pairs = gemm;
  kernels.dot_pairs = dot;
  return kernels;
}

}  // namespace hearth::cpu
#endif
