#pragma once

#include <cstdint>
#include <cstring>

/// 16-bit numbers and wide loads, identical on every GPU; included by rt.h, which defines RT_DEVICE.
namespace hearth::rt {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

/// Returns the same bits as another type of equal size.
template <typename To, typename From>
RT_DEVICE To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To made;
  __builtin_memcpy(&made, &value, sizeof made);
  return made;
}

RT_DEVICE float to_float(float value) { return value; }
RT_DEVICE float to_float(bf16 value) { return bits_as<float>(static_cast<uint32_t>(value.bits) << 16); }
RT_DEVICE float to_float(f16 value) { return f16_bits_to_float(value.bits); }

template <typename T>
RT_DEVICE T from_float(float value);
template <>
RT_DEVICE float from_float<float>(float value) {
  return value;
}
template <>
RT_DEVICE bf16 from_float<bf16>(float value) {
  const auto bits = bits_as<uint32_t>(value);
  const uint32_t nan = bits | 0x400000U, rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
  return {static_cast<uint16_t>((value != value ? nan : rounded) >> 16)};
}
template <>
RT_DEVICE f16 from_float<f16>(float value) {
  return {float_to_f16_bits(value)};
}

/// `n` elements, aligned for a single load or store of up to 16 bytes.
template <typename T, int n>
struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Vec {
  T at[n];
};
template <typename T, int n>
RT_DEVICE Vec<T, n> load(const T* from) {
  Vec<T, n> made;
  if constexpr (n * sizeof(T) == 16) {
    const Word16 word = *reinterpret_cast<const Word16*>(from);
    __builtin_memcpy(&made, &word, 16);
  } else if constexpr (n * sizeof(T) == 8) {
    const Word8 word = *reinterpret_cast<const Word8*>(from);
    __builtin_memcpy(&made, &word, 8);
  } else if constexpr (n * sizeof(T) == 4) {
    const Word4 word = *reinterpret_cast<const Word4*>(from);
    __builtin_memcpy(&made, &word, 4);
  } else {
    for (int i = 0; i < n; ++i) made.at[i] = from[i];
  }
  return made;
}
template <typename T, int n>
RT_DEVICE void store(T* to, const Vec<T, n>& value) {
  if constexpr (n * sizeof(T) == 16) {
    Word16 word;
    __builtin_memcpy(&word, &value, 16);
    *reinterpret_cast<Word16*>(to) = word;
  } else if constexpr (n * sizeof(T) == 8) {
    Word8 word;
    __builtin_memcpy(&word, &value, 8);
    *reinterpret_cast<Word8*>(to) = word;
  } else if constexpr (n * sizeof(T) == 4) {
    Word4 word;
    __builtin_memcpy(&word, &value, 4);
    *reinterpret_cast<Word4*>(to) = word;
  } else {
    for (int i = 0; i < n; ++i) to[i] = value.at[i];
  }
}

}  // namespace hearth::rt
