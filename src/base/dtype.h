#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hearth {

/// Element types. fp8 types are the OCP variants (E4M3 without infinities, E5M2 with).
enum class DType : uint8_t { f64, f32, bf16, f16, f8_e4m3, f8_e5m2, i64, i32, i16, i8, u8, boolean };

/// Returns the size of an element in bytes.
int64_t dtype_bytes(DType dtype);
/// Returns the name of a dtype: "f32", "bf16", ...
std::string_view dtype_name(DType dtype);
/// Returns the dtype with that name ("f32", "bf16", ...); nullopt if there is none.
std::optional<DType> dtype_from_name(std::string_view name);
/// True for floating-point types.
bool is_floating(DType dtype);

/// bfloat16 storage: the upper half of an fp32, rounded to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;
};
/// IEEE binary16 storage.
struct f16 {
  uint16_t bits = 0;
};

inline float to_f32(bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

inline bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

/// Largest finite f16.
inline constexpr float kMaxF16 = 65504;

float to_f32(f16 value);
/// Converts to binary16, rounding to nearest even; overflow gives infinity.
f16 to_f16(float value);

/// Converts OCP 8-bit floating point (arXiv 2209.05433) to and from f32. Encoding saturates to the
/// largest finite value.
float f8_e4m3_to_f32(uint8_t bits);
float f8_e5m2_to_f32(uint8_t bits);
uint8_t f32_to_f8_e4m3(float value);
uint8_t f32_to_f8_e5m2(float value);

/// Reads element `index` of the array of `dtype` at `data` as double.
double load_element(DType dtype, const void* data, int64_t index);
/// Writes `value`, rounded to `dtype`, as element `index` of the array at `data`.
void store_element(DType dtype, void* data, int64_t index, double value);

}  // namespace hearth
