#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/choices.h"
#include "base/e4m3.h"
#include "base/formula.h"

namespace hearth {

/// Formats that store a group of elements as codes with one scale: value = scale * (code - zero point).
///   int4, int8: codes in [-8, 7] and [-128, 127]; scale = max |x| / 7.5 and / 127.5, rounded to bf16
///   fp8: E4M3 codes (arXiv 2209.05433); scale = max |x| / 448, rounded to bf16
///   int8_channel: codes in [-127, 127]; scale = max |x| / 127 in f32, for weights whose channels may change
///     sign when they are exported
///   int8_token, fp8_token: int8 and fp8 with the scale in f32, for activations
///   int8_affine: codes in [-128, 127] with a zero point; scale = (max x - min x) / 255 in f32, for
///     activations; the range is extended to include 0
/// The formulas are those of torchao 0.18 (choose_qparams_affine and quantize_affine; _choose_scale_float8
/// and _quantize_affine_float8) with a bf16 scale for weights, as compressed-tensors stores it.
enum class GroupFormat : uint8_t { none, int4, int8, fp8, int8_token, fp8_token, int8_affine, int8_channel };
/// The empty name selects no format.
template <>
inline constexpr auto kNames<GroupFormat> = std::to_array<std::string_view>({"", "int4", "int8", "fp8",
                                                                             "int8_token", "fp8_token",
                                                                             "int8_affine", "int8_channel"});

HEARTH_FORMULA inline bool is_fp8(GroupFormat format) {
  return format == GroupFormat::fp8 || format == GroupFormat::fp8_token;
}

/// True if every element is in the range of the format, see is_in_range().
HEARTH_FORMULA inline bool covers_all(GroupFormat format) {
  return format == GroupFormat::int8_token || format == GroupFormat::fp8_token;
}

/// Largest and smallest code of a format.
HEARTH_FORMULA inline float max_code(GroupFormat format) {
  return is_fp8(format) ? kMaxE4m3 : format == GroupFormat::int4 ? 7.0F : 127.0F;
}

HEARTH_FORMULA inline float min_code(GroupFormat format) {
  const bool is_symmetric = is_fp8(format) || format == GroupFormat::int8_channel;
  return is_symmetric ? -max_code(format) : -max_code(format) - 1;
}

/// Returns a float rounded to bf16, ties to even.
HEARTH_FORMULA inline float as_bf16(float value) {
  const auto bits = e4m3::bits_as<uint32_t>(value);
  return e4m3::bits_as<float>((bits + 0x7FFFU + (bits >> 16 & 1U)) & 0xFFFF0000U);
}

/// Scale and zero point of a group.
struct GroupScale {
  float scale = 1;
  float zero = 0;
};
/// Returns the scale of a group whose elements are in [min, max].
HEARTH_FORMULA inline GroupScale group_scale(GroupFormat format, float min, float max) {
  constexpr float kSmallestNormal = 0x1p-126F;
  const auto clamped = [](float scale) { return scale < kSmallestNormal ? kSmallestNormal : scale; };
  const float low = min < 0 ? min : 0.0F, high = max > 0 ? max : 0.0F;
  if (format == GroupFormat::int8_affine) {
    const float scale = clamped((high - low) / 255);
    const float zero = -128 - std::nearbyint(low / scale);
    return {scale, zero < -128 ? -128.0F : zero > 127 ? 127.0F : zero};
  }
  const float largest = -low > high ? -low : high;
  const float scale = largest / ((max_code(format) - min_code(format)) / 2);
  const bool is_weight =
      format == GroupFormat::int4 || format == GroupFormat::int8 || format == GroupFormat::fp8;
  return {clamped(is_weight ? as_bf16(scale) : scale), 0};
}

/// Returns the code of an element before it is limited to the range of the format; not rounded for fp8.
HEARTH_FORMULA inline float unlimited_code(GroupFormat format, float element, const GroupScale& group) {
  if (is_fp8(format)) return element / group.scale;
  const float inverse = 1 / group.scale;
  return std::nearbyint(element * inverse) + group.zero;
}
/// True if elements with this code get a gradient: if the code is in the range of the format. The range of
/// int8_token and fp8_token is that of the token, except for half a step at its largest element, which all
/// get a gradient: otherwise the last bit of the element would decide.
HEARTH_FORMULA inline bool is_in_range(GroupFormat format, float code) {
  if (covers_all(format)) return true;
  return code >= min_code(format) && code <= max_code(format);
}
/// Returns the code of an element. NaN stays NaN.
HEARTH_FORMULA inline float group_code(GroupFormat format, float element, const GroupScale& group) {
  const float code = unlimited_code(format, element, group);
  const float high = max_code(format), low = min_code(format);
  const float limited = code < low ? low : code > high ? high : code;
  const bool is_nan = limited != limited;
  return is_fp8(format) && !is_nan ? nearest_e4m3(limited) : limited;
}
/// Returns the value of a code.
HEARTH_FORMULA inline float group_value(float code, const GroupScale& group) {
  return (code - group.zero) * group.scale;
}

}  // namespace hearth
