#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

namespace hearth::cpu {
namespace {

/// Sums in f32; on the left and right of a product, pairs of bf16.
struct Vec {
  static constexpr int64_t kWidth = 16;
  static constexpr int kRows = 14;
  __m512 v;
  static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Vec load(const float* p, int64_t n) { return {_mm512_maskz_loadu_ps(mask(n), p)}; }
  static Vec broadcast(float x) { return {_mm512_set1_ps(x)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store(float* p, int64_t n) const { _mm512_mask_storeu_ps(p, mask(n), v); }
  float sum() const { return _mm512_reduce_add_ps(v); }
  static __mmask16 mask(int64_t n) { return static_cast<__mmask16>((1U << n) - 1U); }
};
inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_dpbf16_ps(c.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
}

}  // namespace
}  // namespace hearth::cpu

#include "backend/cpu/simd/product.inc"

namespace hearth::cpu {

SimdKernels with_bf16_pairs(SimdKernels kernels) {
  kernels.gemm_pairs = gemm;
  kernels.dot_pairs = dot;
  return kernels;
}

}  // namespace hearth::cpu
#endif
