#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#define HEARTH_SIMD_TABLE kAvx2Kernels
#define HEARTH_SIMD_ISA "avx2"

namespace hearth::cpu {
namespace {

struct Vec {
  static constexpr int64_t kWidth = 8;
  static constexpr int kRows = 6;
  __m256 v;
  static Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static Vec load(const float* p, int64_t n) { return {_mm256_maskload_ps(p, mask(n))}; }
  static Vec broadcast(float x) { return {_mm256_set1_ps(x)}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  void store(float* p, int64_t n) const { _mm256_maskstore_ps(p, mask(n), v); }
  float sum() const {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
  }
  static __m256i mask(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};
inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline Vec fma_at(const float* a, Vec b, Vec c) { return fma(Vec::broadcast(*a), b, c); }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
inline Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
inline Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
inline Vec times_power_of_two(Vec a, Vec n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_mul_ps(a.v, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)))};
}
inline Vec select_greater(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.v, yes.v, _mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ))};
}
inline Vec select_equal(Vec a, Vec b, Vec yes, Vec no) {
  return {_mm256_blendv_ps(no.v, yes.v, _mm256_cmp_ps(a.v, b.v, _CMP_EQ_OQ))};
}
/// Loads four floats from each of p and p + stride.
inline Vec load_fours(const float* p, int64_t stride) {
  return {_mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), _mm_loadu_ps(p + stride), 1)};
}
/// Transposes the two 4x4 matrices in r[0] to r[3], each in four lanes.
inline void transpose_fours(Vec r[4]) {
  const __m256 a = _mm256_unpacklo_ps(r[0].v, r[1].v), b = _mm256_unpackhi_ps(r[0].v, r[1].v);
  const __m256 c = _mm256_unpacklo_ps(r[2].v, r[3].v), d = _mm256_unpackhi_ps(r[2].v, r[3].v);
  r[0].v = _mm256_shuffle_ps(a, c, 0x44);
  r[1].v = _mm256_shuffle_ps(a, c, 0xee);
  r[2].v = _mm256_shuffle_ps(b, d, 0x44);
  r[3].v = _mm256_shuffle_ps(b, d, 0xee);
}
inline void store_bytes(Vec a, uint8_t* p, int64_t n) {
  float lanes[8];
  a.store(lanes);
  for (int64_t i = 0; i < n; ++i) p[i] = static_cast<uint8_t>(lanes[i]);
}
inline Vec load_bytes(const uint8_t* p, int64_t n) {
  float lanes[8] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = static_cast<float>(p[i]);
  return Vec::load(lanes);
}

}  // namespace
}  // namespace hearth::cpu

#include "backend/cpu/simd/kernels.inc"
#endif
