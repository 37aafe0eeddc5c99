#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#define HEARTH_SIMD_TABLE kAvx512Kernels
#define HEARTH_SIMD_ISA "avx512"

namespace hearth::cpu {
namespace {

#include "backend/cpu/simd/avx512_vec.inc"

inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
/// fma(broadcast(*a), b, c) as one instruction with an embedded broadcast, which g++ does not emit.
inline Vec fma_at(const float* a, Vec b, Vec c) {
  __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c.v) : "v"(b.v), "m"(*a));
  return c;
}
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Vec times_power_of_two(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
inline Vec select_greater(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ), no.v, yes.v)};
}
inline Vec select_equal(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ), no.v, yes.v)};
}
/// Loads four floats from each of p, p + stride, p + 2 stride, p + 3 stride.
inline Vec load_fours(const float* p, int64_t stride) {
  const __m512 first = _mm512_castps128_ps512(_mm_loadu_ps(p));
  const __m512 second = _mm512_insertf32x4(first, _mm_loadu_ps(p + stride), 1);
  const __m512 third = _mm512_insertf32x4(second, _mm_loadu_ps(p + 2 * stride), 2);
  return {_mm512_insertf32x4(third, _mm_loadu_ps(p + 3 * stride), 3)};
}
/// Transposes the four 4x4 matrices in r[0] to r[3], each in four lanes.
inline void transpose_fours(Vec r[4]) {
  const __m512 a = _mm512_unpacklo_ps(r[0].v, r[1].v), b = _mm512_unpackhi_ps(r[0].v, r[1].v);
  const __m512 c = _mm512_unpacklo_ps(r[2].v, r[3].v), d = _mm512_unpackhi_ps(r[2].v, r[3].v);
  r[0].v = _mm512_shuffle_ps(a, c, 0x44);
  r[1].v = _mm512_shuffle_ps(a, c, 0xee);
  r[2].v = _mm512_shuffle_ps(b, d, 0x44);
  r[3].v = _mm512_shuffle_ps(b, d, 0xee);
}
inline void store_bytes(Vec a, uint8_t* p, int64_t n) {
  _mm512_mask_cvtepi32_storeu_epi8(p, Vec::mask(n), _mm512_cvtps_epi32(a.v));
}
inline Vec load_bytes(const uint8_t* p, int64_t n) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(Vec::mask(n), p)))};
}

}  // namespace
}  // namespace hearth::cpu

#include "backend/cpu/simd/kernels.inc"
#endif
