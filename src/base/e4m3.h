#pragma once

#include <cstdint>

#include "base/formula.h"

/// 8-bit floating point E4M3 without infinities (arXiv 2209.05433), and the power-of-two scale of a row of
/// such codes as an exponent byte: E8M0 of the OCP Microscaling Formats specification 1.0.
namespace hearth {

/// Largest finite value of E4M3.
inline constexpr float kMaxE4m3 = 448;
/// Max rounding error of E4M3, relative to the value, from 2^-6 to kMaxE4m3. Below 2^-6 the max error is
/// absolute: 2^-10.
inline constexpr double kMaxE4m3Error = 0x1p-4;
/// Exponent byte of a row that has an infinite or NaN element. The scale is NaN.
inline constexpr uint8_t kNanExponent = 0xFF;

namespace e4m3 {
template <typename To, typename From>
HEARTH_FORMULA inline To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To made;
  __builtin_memcpy(&made, &value, sizeof made);
  return made;
}
}  // namespace e4m3

/// Returns the value of the E4M3 code in the lowest byte of `code`. The two NaN codes give +-480.
HEARTH_FORMULA inline float e4m3_value(uint32_t code) {
  const uint32_t magnitude = code & 0x7FU;
  const auto normal = e4m3::bits_as<float>((magnitude << 20) + (120U << 23));
  const float value = magnitude < 8 ? static_cast<float>(static_cast<int>(magnitude)) * 0x1p-9F : normal;
  return e4m3::bits_as<float>(e4m3::bits_as<uint32_t>(value) | (code & 0x80U) << 24);
}

/// Returns the E4M3 code nearest to x: ties to even; values beyond kMaxE4m3, and NaN, become +-kMaxE4m3.
HEARTH_FORMULA inline uint8_t e4m3_code(float x) {
  const auto bits = e4m3::bits_as<uint32_t>(x);
  const uint32_t sign = bits >> 24 & 0x80U, magnitude = bits & 0x7FFFFFFFU;
  // Adding 2^14 aligns the last bit of a subnormal E4M3 (2^-9) with the last bit of the float, so that the
  // addition rounds to nearest even.
  const uint32_t subnormal =
      e4m3::bits_as<uint32_t>(e4m3::bits_as<float>(magnitude) + 0x1p14F) - (141U << 23);
  const uint32_t normal = ((magnitude + 0x7FFFFU + (magnitude >> 20 & 1U)) >> 20) - (120U << 3);
  const uint32_t code = magnitude < (121U << 23) ? subnormal : normal;
  return static_cast<uint8_t>(sign | (magnitude >= e4m3::bits_as<uint32_t>(kMaxE4m3) ? 0x7EU : code));
}

/// Returns e4m3_value(e4m3_code(x)) in a form that compilers vectorize; for NaN, any value.
HEARTH_FORMULA inline float nearest_e4m3(float x) {
  const auto bits = e4m3::bits_as<uint32_t>(x);
  const uint32_t sign = bits & 0x80000000U, magnitude = bits & 0x7FFFFFFFU;
  const float exact = e4m3::bits_as<float>(magnitude);
  // As in e4m3_code(): 2^14 aligns the last bit of a subnormal with the last bit of the float.
  const float subnormal = (exact + 0x1p14F) - 0x1p14F;
  const uint32_t normal = (magnitude + 0x7FFFFU + (magnitude >> 20 & 1U)) & ~0xFFFFFU;
  const float rounded = exact < 0x1p-6F ? subnormal : e4m3::bits_as<float>(normal);
  const float kept = rounded < kMaxE4m3 ? rounded : kMaxE4m3;
  return e4m3::bits_as<float>(e4m3::bits_as<uint32_t>(kept) | sign);
}

/// Returns |x|; infinity for NaN, so that a maximum of magnitudes is not finite if an element is not.
HEARTH_FORMULA inline float e4m3_magnitude(float x) {
  const uint32_t bits = e4m3::bits_as<uint32_t>(x) & 0x7FFFFFFFU;
  return e4m3::bits_as<float>(bits < 0x7F800000U ? bits : 0x7F800000U);
}
/// Returns the exponent byte of the scale of a row whose largest magnitude is `absmax`. The scale is the
/// smallest power of two, at least 2^-126, with absmax / scale <= kMaxE4m3; 1 if absmax is 0. Returns
/// kNanExponent if absmax is not finite.
HEARTH_FORMULA inline uint8_t e4m3_exponent(float absmax) {
  const auto bits = e4m3::bits_as<uint32_t>(absmax);
  if (bits == 0) return 127;
  if (bits >= 0x7F800000U) return kNanExponent;
  // kMaxE4m3 is 1.75 * 2^8.
  const int exponent = static_cast<int>(bits >> 23) - ((bits & 0x7FFFFFU) <= 0x600000U ? 8 : 7);
  return static_cast<uint8_t>(exponent < 1 ? 1 : exponent);
}
/// Returns the scale with that exponent byte.
HEARTH_FORMULA inline float e4m3_scale(uint8_t exponent) {
  return e4m3::bits_as<float>(exponent == kNanExponent ? 0x7FC00000U : uint32_t{exponent} << 23);
}
/// Returns 1 / scale for an exponent byte of e4m3_exponent(); 0 for kNanExponent.
HEARTH_FORMULA inline float e4m3_inverse_scale(uint8_t exponent) {
  return e4m3::bits_as<float>(exponent == kNanExponent ? 0U : (254U - exponent) << 23);
}

}  // namespace hearth
