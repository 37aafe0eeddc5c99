#include "base/dtype.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/e4m3.h"
#include "base/error.h"

namespace hearth {
namespace {

struct DTypeInfo {
  std::string_view name;
  int64_t bytes;
  bool floating;
};

constexpr auto kInfo = std::to_array<DTypeInfo>({{"f64", 8, true},
                                                 {"f32", 4, true},
                                                 {"bf16", 2, true},
                                                 {"f16", 2, true},
                                                 {"f8_e4m3", 1, true},
                                                 {"f8_e5m2", 1, true},
                                                 {"i64", 8, false},
                                                 {"i32", 4, false},
                                                 {"i16", 2, false},
                                                 {"i8", 1, false},
                                                 {"u8", 1, false},
                                                 {"bool", 1, false}});

const DTypeInfo& info(DType dtype) { return kInfo[static_cast<size_t>(dtype)]; }

/// Returns the fp8 code whose value is nearest to `value`, by search over the 127 or 128 finite codes of one
/// sign. Ties go to the even code.
template <float (*decode)(uint8_t)>
uint8_t encode_f8(float value, uint8_t largest_finite) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7f);
  const float magnitude = std::fabs(value);
  if (magnitude >= decode(largest_finite)) return static_cast<uint8_t>(sign | largest_finite);
  uint8_t low = 0;
  uint8_t high = largest_finite;
  while (high - low > 1) {
    const auto middle = static_cast<uint8_t>((low + high) / 2);
    (decode(middle) <= magnitude ? low : high) = middle;
  }
  const float below = magnitude - decode(low);
  const float above = decode(high) - magnitude;
  const bool up = above < below || (above == below && (low & 1) != 0);
  return static_cast<uint8_t>(sign | (up ? high : low));
}

float decode_f8(uint8_t bits, int mantissa_bits, int bias) {
  const int exponent = (bits & 0x7f) >> mantissa_bits;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const float scale = 1.0F / static_cast<float>(1 << mantissa_bits);
  const float fraction = static_cast<float>(mantissa) * scale;
  const float magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1.0F + fraction, exponent - bias);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

template <typename T>
T load_as(const void* data, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void store_as(void* data, int64_t index, T value) {
  std::memcpy(static_cast<char*>(data) + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

}  // namespace

int64_t dtype_bytes(DType dtype) { return info(dtype).bytes; }
std::string_view dtype_name(DType dtype) { return info(dtype).name; }
bool is_floating(DType dtype) { return info(dtype).floating; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (kInfo[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

float to_f32(f16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1fu;
  const uint32_t mantissa = value.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

f16 to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {
    // Adding 0.5 aligns the last bit of the subnormal f16 with the last bit of the float, so that the
    // addition rounds to nearest even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

float f8_e4m3_to_f32(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  return e4m3_value(bits);
}

float f8_e5m2_to_f32(uint8_t bits) {
  if ((bits & 0x7f) > 0x7c) return std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  if ((bits & 0x7f) == 0x7c) return (bits & 0x80) != 0 ? -infinity : infinity;
  return decode_f8(bits, 2, 15);
}

uint8_t f32_to_f8_e4m3(float value) {
  return std::isnan(value) ? static_cast<uint8_t>(std::signbit(value) ? 0xff : 0x7f) : e4m3_code(value);
}
uint8_t f32_to_f8_e5m2(float value) { return encode_f8<f8_e5m2_to_f32>(value, 0x7b); }

double load_element(DType dtype, const void* data, int64_t index) {
  switch (dtype) {
    case DType::f64:
      return load_as<double>(data, index);
    case DType::f32:
      return load_as<float>(data, index);
    case DType::bf16:
      return to_f32(load_as<bf16>(data, index));
    case DType::f16:
      return to_f32(load_as<f16>(data, index));
    case DType::f8_e4m3:
      return f8_e4m3_to_f32(load_as<uint8_t>(data, index));
    case DType::f8_e5m2:
      return f8_e5m2_to_f32(load_as<uint8_t>(data, index));
    case DType::i64:
      return static_cast<double>(load_as<int64_t>(data, index));
    case DType::i32:
      return load_as<int32_t>(data, index);
    case DType::i16:
      return load_as<int16_t>(data, index);
    case DType::i8:
      return load_as<int8_t>(data, index);
    case DType::u8:
    case DType::boolean:
      return load_as<uint8_t>(data, index);
  }
  internal_error("load_element: unknown dtype {}", static_cast<int>(dtype));
}

void store_element(DType dtype, void* data, int64_t index, double value) {
  switch (dtype) {
    case DType::f64:
      return store_as(data, index, value);
    case DType::f32:
      return store_as(data, index, static_cast<float>(value));
    case DType::bf16:
      return store_as(data, index, to_bf16(static_cast<float>(value)));
    case DType::f16:
      return store_as(data, index, to_f16(static_cast<float>(value)));
    case DType::f8_e4m3:
      return store_as(data, index, f32_to_f8_e4m3(static_cast<float>(value)));
    case DType::f8_e5m2:
      return store_as(data, index, f32_to_f8_e5m2(static_cast<float>(value)));
    case DType::i64:
      return store_as(data, index, static_cast<int64_t>(value));
    case DType::i32:
      return store_as(data, index, static_cast<int32_t>(value));
    case DType::i16:
      return store_as(data, index, static_cast<int16_t>(value));
    case DType::i8:
      return store_as(data, index, static_cast<int8_t>(value));
    case DType::u8:
      return store_as(data, index, static_cast<uint8_t>(value));
    case DType::boolean:
      return store_as(data, index, static_cast<uint8_t>(value != 0));
  }
}

}  // namespace hearth
