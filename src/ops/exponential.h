#pragma once

#include <cmath>
#include <cstdint>

#include "base/formula.h"

/// e^x, log(1 + x) and the logistic function for kernels. The f32 versions for CPUs have neither branches nor
/// calls, so that compilers vectorize loops that use them; GPU and f64 versions call the math library.
namespace hearth::ops {

#if defined(__CUDACC__) || defined(__HIPCC__)
HEARTH_FORMULA inline float exp_of(float x) { return std::exp(x); }
HEARTH_FORMULA inline float log1p_of(float x) { return std::log1p(x); }
HEARTH_FORMULA inline float sigmoid_of(float x) { return 1.0F / (1.0F + std::exp(-x)); }
#else
/// Returns 2^n for n in [-126, 127]; infinity for n = 128.
[[gnu::always_inline]] inline float power_of_two(uint32_t n) {
  const uint32_t bits = (n + 127U) << 23U;
  float made;
  __builtin_memcpy(&made, &bits, sizeof made);
  return made;
}

/// Returns e^x within 2 ulp; infinity on overflow, NaN for NaN.
[[gnu::always_inline]] inline float exp_of(float x) {
  // Adding 1.5 * 2^23 rounds x log2(e) to an integer n, which is then in the low bits of `shifted`.
  constexpr float kShift = 12582912.0F;
  constexpr uint32_t kShiftBits = 0x4B400000;
  x = x < -104.5F ? -104.5F : x;
  x = x > 89.0F ? 89.0F : x;
  const float shifted = x * 1.44269504F + kShift;
  const float n = shifted - kShift;
  // r = x - n log 2, with log 2 split into two terms (Cody-Waite), so that the product of n and the first
  // term is exact.
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float mantissa = p * (r * r) + r + 1.0F;
  uint32_t bits;
  __builtin_memcpy(&bits, &shifted, sizeof bits);
  const auto whole = static_cast<int32_t>(bits - kShiftBits);
  const int32_t half = whole >> 1;
  return mantissa * power_of_two(static_cast<uint32_t>(half)) *
         power_of_two(static_cast<uint32_t>(whole - half));
}

/// Returns 1 / (1 + e^-x) within 1.5e-7 absolute and 5e-6 relative error (where the result is normal); NaN
/// for NaN. Costs half as much as exp_of: the polynomial for 2^r, r in [-1/2, 1/2], has degree 5, and results
/// below the normal range of f32 may become 0.
[[gnu::always_inline]] inline float sigmoid_of(float x) {
  constexpr float kShift = 12582912.0F;
  constexpr uint32_t kShiftBits = 0x4B400000;
  float y = -x;
  y = y < -87.0F ? -87.0F : y;
  y = y > 88.9F ? 88.9F : y;
  y *= 1.44269504F;
  const float shifted = y + kShift;
  const float r = y - (shifted - kShift);
  float p = 1.32765e-3F;
  p = p * r + 9.67554e-3F;
  p = p * r + 5.550713e-2F;
  p = p * r + 2.402212e-1F;
  p = p * r + 6.9314697e-1F;
  p = p * r + 1.0F;
  uint32_t bits;
  __builtin_memcpy(&bits, &shifted, sizeof bits);
  return 1.0F / (1.0F + p * power_of_two(bits - kShiftBits));
}

/// Returns log(1 + x) for x in [0, 1] within 3 ulp: twice the series of artanh(x / (2 + x)). NaN for NaN.
[[gnu::always_inline]] inline float log1p_of(float x) {
  const float s = x / (2.0F + x), square = s * s;
  float sum = 1.0F / 17;
  sum = sum * square + 1.0F / 15;
  sum = sum * square + 1.0F / 13;
  sum = sum * square + 1.0F / 11;
  sum = sum * square + 1.0F / 9;
  sum = sum * square + 1.0F / 7;
  sum = sum * square + 1.0F / 5;
  sum = sum * square + 1.0F / 3;
  return 2.0F * (s + s * square * sum);
}
#endif
HEARTH_FORMULA inline double exp_of(double x) { return std::exp(x); }
HEARTH_FORMULA inline double log1p_of(double x) { return std::log1p(x); }
HEARTH_FORMULA inline double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace hearth::ops
