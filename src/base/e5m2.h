#pragma once

#include <cmath>

#include "base/e4m3.h"

/// 8-bit floating point E5M2 (arXiv 2209.05433), in which gradients are sent.
namespace hearth {

/// Largest finite value of E5M2.
inline constexpr float kMaxE5m2 = 57344;

/// Returns the E5M2 value nearest to x: ties to even; values beyond kMaxE5m2 become +-kMaxE5m2, infinities
/// and NaN become NaN.
HEARTH_FORMULA inline float round_to_e5m2(float x) {
  const auto bits = e4m3::bits_as<uint32_t>(x);
  const uint32_t sign = bits & 0x80000000U, magnitude = bits & 0x7FFFFFFFU;
  if (magnitude >= 0x7F800000U) return e4m3::bits_as<float>(0x7FC00000U);
  // Adding 2^7 aligns the last bit of a subnormal E5M2 (2^-16) with the last bit of the float.
  const float subnormal = (e4m3::bits_as<float>(magnitude) + 0x1p7F) - 0x1p7F;
  const uint32_t rounded = (magnitude + 0xFFFFFU + (magnitude >> 21 & 1U)) & ~0x1FFFFFU;
  const float value = magnitude < (113U << 23) ? subnormal : e4m3::bits_as<float>(rounded);
  return e4m3::bits_as<float>(e4m3::bits_as<uint32_t>(value < kMaxE5m2 ? value : kMaxE5m2) | sign);
}

/// Returns a power of two by which elements with this sum of squares can be divided to be below 2^15, in the
/// range of E5M2; 1 if the sum is 0 or not finite. Uses the sum's exponent only, so that it is the same on
/// every device.
HEARTH_FORMULA inline float e5m2_scale(float sum_of_squares) {
  const auto bits = e4m3::bits_as<uint32_t>(sum_of_squares);
  if (bits == 0 || bits >= 0x7F800000U) return 1;
  const int exponent = static_cast<int>(bits >> 23) - 127;
  return e4m3::bits_as<float>(static_cast<uint32_t>((exponent + 2 - (exponent & 1)) / 2 - 15 + 127) << 23);
}

}  // namespace hearth
