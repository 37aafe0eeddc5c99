#include <cstdint>

#define HEARTH_SIMD_TABLE kBaselineKernels
#define HEARTH_SIMD_ISA "baseline"

namespace hearth::cpu {
namespace {

struct Vec {
  static constexpr int64_t kWidth = 4;
  static constexpr int kRows = 4;
  float v[4];
  static Vec load(const float* p) { return {{p[0], p[1], p[2], p[3]}}; }
  static Vec load(const float* p, int64_t n) {
    Vec r{};
    for (int64_t i = 0; i < n; ++i) r.v[i] = p[i];
    return r;
  }
  static Vec broadcast(float x) { return {{x, x, x, x}}; }
  void store(float* p) const { store(p, 4); }
  void store(float* p, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) p[i] = v[i];
  }
  float sum() const { return (v[0] + v[2]) + (v[1] + v[3]); }
};

template <typename F>
inline Vec map(Vec a, Vec b, F f) {
  return {{f(a.v[0], b.v[0]), f(a.v[1], b.v[1]), f(a.v[2], b.v[2]), f(a.v[3], b.v[3])}};
}
inline Vec operator+(Vec a, Vec b) {
  return map(a, b, [](float x, float y) { return x + y; });
}
inline Vec operator-(Vec a, Vec b) {
  return map(a, b, [](float x, float y) { return x - y; });
}
inline Vec operator*(Vec a, Vec b) {
  return map(a, b, [](float x, float y) { return x * y; });
}
inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
inline Vec fma_at(const float* a, Vec b, Vec c) { return fma(Vec::broadcast(*a), b, c); }
inline Vec max(Vec a, Vec b) {
  return map(a, b, [](float x, float y) { return x > y ? x : y; });
}
inline Vec operator/(Vec a, Vec b) {
  return map(a, b, [](float x, float y) { return x / y; });
}
inline Vec min(Vec a, Vec b) {
  return map(a, b, [](float x, float y) { return x < y ? x : y; });
}
inline Vec times_power_of_two(Vec a, Vec n) {
  return map(a, n, [](float x, float power) {
    return x * __builtin_bit_cast(float, static_cast<uint32_t>(static_cast<int32_t>(power) + 127) << 23);
  });
}
inline Vec select_greater(Vec a, Vec b, Vec yes, Vec no) {
  Vec r{};
  for (int i = 0; i < 4; ++i) r.v[i] = a.v[i] > b.v[i] ? yes.v[i] : no.v[i];
  return r;
}
inline Vec select_equal(Vec a, Vec b, Vec yes, Vec no) {
  Vec r{};
  for (int i = 0; i < 4; ++i) r.v[i] = a.v[i] == b.v[i] ? yes.v[i] : no.v[i];
  return r;
}
inline Vec load_fours(const float* p, int64_t) { return Vec::load(p); }
inline void transpose_fours(Vec r[4]) {
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < i; ++j) {
      const float kept = r[i].v[j];
      r[i].v[j] = r[j].v[i];
      r[j].v[i] = kept;
    }
  }
}
inline void store_bytes(Vec a, uint8_t* p, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = static_cast<uint8_t>(a.v[i]);
}
inline Vec load_bytes(const uint8_t* p, int64_t n) {
  Vec r{};
  for (int64_t i = 0; i < n; ++i) r.v[i] = static_cast<float>(p[i]);
  return r;
}

}  // namespace
}  // namespace hearth::cpu

#include "backend/cpu/simd/kernels.inc"
