// What the generated instructions (generate.py) work on, and the functions that AMD's pseudocode calls.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

namespace machine_code {

/// A scalar instruction: sources, destination as it was, and the registers that it may change.
struct Scalar {
  uint64_t s0 = 0, s1 = 0, d = 0;
  uint32_t scc = 0, exec = 0, vcc = 0, m0 = 0, literal = 0;
  int16_t simm16 = 0;
};

/// A vector instruction: registers lie as 32 words, one for each lane; the high words of 64 bits follow the
/// low ones.
struct Lanes {
  const uint32_t* s[3] = {};
  uint32_t* d = nullptr;
  bool wide[3] = {}, wide_d = false;
  uint32_t exec = 0, carry = 0, literal = 0;
  uint32_t result = 0;  ///< a bit for each lane: comparisons and carries

  template <int k>
  uint64_t source(int lane) const {
    return wide[k] ? s[k][lane] | uint64_t{s[k][32 + lane]} << 32 : s[k][lane];
  }
  uint64_t destination(int lane) const { return wide_d ? d[lane] | uint64_t{d[32 + lane]} << 32 : d[lane]; }
  void write(int lane, uint64_t value) {
    d[lane] = static_cast<uint32_t>(value);
    if (wide_d) d[32 + lane] = static_cast<uint32_t>(value >> 32);
  }
};

/// An access to memory by the lanes that are on. `locate` checks it and answers where the bytes are.
struct Access {
  uint32_t on = 0;
  uint64_t address[32] = {};
  const uint32_t* data = nullptr;
  const uint32_t* data2 = nullptr;
  uint32_t* result = nullptr;
  uint32_t offset = 0, offset0 = 0, offset1 = 0;
  bool atomic = false;
  std::byte* (*locate)(Access& x, int lane, uint64_t address, uint32_t bytes, bool writes) = nullptr;
  void* context = nullptr;

  template <typename T>
  T load(int lane, uint64_t at) {
    T value;
    std::memcpy(&value, locate(*this, lane, at, sizeof value, false), sizeof value);
    return value;
  }
  template <typename T>
  void store(int lane, uint64_t at, T value) {
    std::memcpy(locate(*this, lane, at, sizeof value, true), &value, sizeof value);
  }
};

enum class Encoding {
  sop1,
  sop2,
  sopk,
  sopc,
  sopp,
  smem,
  vop1,
  vop2,
  vopc,
  vop3,
  vop3sd,
  vop3p,
  vopd,
  ds,
  flat,
  global,
  scratch,
  mubuf
};
enum class Kind { hand, scalar, lanes, access };
using Function = void (*)();

/// What the tables say of an opcode. `run` takes a Scalar, Lanes or Access, as `kind` says; none: written by
/// hand, or not known.
struct Operation {
  const char* name;
  int code;
  Function run;
  Kind kind;
  int bits[4];        ///< of the destination and the sources; 0: it has none
  const char* kinds;  ///< of the same: h, f, d: floats of 16, 32, 64 bits, p: two of 16; i: bits
  bool result, loads, stores;
};
struct Table {
  Encoding encoding;
  std::span<const Operation> operations;
};
/// Generated.
std::span<const Table> gfx11_tables();
std::span<const Table> gfx12_tables();

// --- Numbers.
using int128_t = __int128;
using uint128_t = unsigned __int128;
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float x) : bits(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT)) {}
  /// Rounded once: to odd on the way through float.
  explicit Half(double x) {
    float f = static_cast<float>(x);
    if (f != x && std::isfinite(f) && (std::bit_cast<uint32_t>(f) & 1) == 0) {
      f = std::nextafterf(
          f, x > f ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity());
    }
    bits = _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
  }
  operator float() const { return _cvtsh_ss(bits); }
};
inline Half operator+(Half a, Half b) { return Half(float{a} + float{b}); }
inline Half operator-(Half a, Half b) { return Half(float{a} - float{b}); }
inline Half operator*(Half a, Half b) { return Half(float{a} * float{b}); }
inline Half operator/(Half a, Half b) { return Half(float{a} / float{b}); }
inline Half operator-(Half a) { return std::bit_cast<Half>(static_cast<uint16_t>(a.bits ^ 0x8000)); }

template <typename To, typename From>
To bits_as(From from) {
  To to{};
  std::memcpy(static_cast<void*>(&to), &from, sizeof to < sizeof from ? sizeof to : sizeof from);
  return to;
}
template <typename As = void, typename T>
uint64_t bits_of(T value) {
  if constexpr (std::is_integral_v<T> || sizeof(T) == 16)
    return static_cast<uint64_t>(value);
  else
    return bits_as<uint64_t>(value);
}
inline uint64_t with_bits(uint64_t whole, int high, int low, uint64_t part) {
  const uint64_t mask = (high - low == 63 ? ~uint64_t{0} : (uint64_t{1} << (high - low + 1)) - 1) << low;
  return (whole & ~mask) | (part << low & mask);
}
template <typename T, typename N>
T shift_left(T x, N by) {
  const auto n = static_cast<uint64_t>(by);
  return n >= sizeof(T) * 8 ? T{0} : static_cast<T>(static_cast<std::make_unsigned_t<T>>(x) << n);
}
template <typename T, typename N>
T shift_right(T x, N by) {
  const auto n = static_cast<uint64_t>(by);
  if (n >= sizeof(T) * 8) return x < 0 ? static_cast<T>(-1) : T{0};
  return static_cast<T>(x >> n);
}
template <int bits>
int64_t sign_extended(uint64_t x) {
  return static_cast<int64_t>(x << (64 - bits)) >> (64 - bits);
}
template <int bits>
uint64_t zero_extended(uint64_t x) {
  return x & ((uint64_t{1} << bits) - 1);
}
template <typename T>
int64_t signext(T x) {
  return static_cast<int64_t>(static_cast<std::make_signed_t<T>>(x));
}
template <typename T, typename N>
T signext_from_bit(T x, N bits) {
  const int n = static_cast<int>(bits);
  if (n == 0 || n >= static_cast<int>(sizeof(T) * 8)) return n == 0 ? T{0} : x;
  return static_cast<T>(static_cast<int64_t>(static_cast<uint64_t>(x) << (64 - n)) >> (64 - n));
}
template <typename T>
T reversed(T x) {
  T y = 0;
  for (size_t i = 0; i < sizeof(T) * 8; ++i) y |= (x >> i & 1) << (sizeof(T) * 8 - 1 - i);
  return y;
}

constexpr double NOT_A_NUMBER = std::numeric_limits<double>::quiet_NaN();
constexpr float UNDERFLOW_F32 = 0, OVERFLOW_F32 = std::numeric_limits<float>::infinity();
constexpr double UNDERFLOW_F64 = 0, OVERFLOW_F64 = std::numeric_limits<double>::infinity();

inline bool isNAN(double x) { return x != x; }
inline bool isQuietNAN(double x) { return x != x && (std::bit_cast<uint64_t>(x) >> 51 & 1) != 0; }
inline bool isSignalNAN(double x) { return x != x && (std::bit_cast<uint64_t>(x) >> 51 & 1) == 0; }
inline double cvtToQuietNAN(double x) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) | uint64_t{1} << 51);
}
inline bool isEven(double x) { return std::fmod(x, 2.0) == 0; }
inline bool sign(Half x) { return x.bits >> 15 != 0; }
inline bool sign(float x) { return std::signbit(x); }
inline bool sign(double x) { return std::signbit(x); }
inline int exponent(Half x) { return x.bits >> 10 & 31; }
inline int exponent(float x) { return static_cast<int>(std::bit_cast<uint32_t>(x) >> 23 & 255); }
inline int exponent(double x) { return static_cast<int>(std::bit_cast<uint64_t>(x) >> 52 & 2047); }
inline float mantissa(float x) {
  int e;
  return std::frexp(x, &e);
}
inline double mantissa(double x) {
  int e;
  return std::frexp(x, &e);
}
inline Half mantissa(Half x) { return Half(mantissa(float{x})); }
inline bool is_denormal(float x) { return x != 0 && exponent(x) == 0; }
inline bool is_denormal(double x) { return x != 0 && exponent(x) == 0; }
template <typename T>
T power_of_two(int n) {
  return std::ldexp(T{1}, n);
}
inline float abs(float x) { return std::fabs(x); }
inline double abs(double x) { return std::fabs(x); }
inline Half abs(Half x) { return std::bit_cast<Half>(static_cast<uint16_t>(x.bits & 0x7fff)); }
inline int32_t abs(int32_t x) { return x < 0 ? -x : x; }

template <typename T>
T overflowed(T x) {
  return x != x ? T{std::numeric_limits<float>::infinity()} : abs(x);
}

// Exact functions of Half are those of float; the others round once more, as the hardware may.
#define HEARTH_OF_ALL(name, of_float, of_double)     \
  inline float name(float x) { return of_float; }    \
  inline double name(double x) { return of_double; } \
  inline Half name(Half h) { return Half(name(float{h})); }
HEARTH_OF_ALL(floor, std::floor(x), std::floor(x))
HEARTH_OF_ALL(ceil, std::ceil(x), std::ceil(x))
HEARTH_OF_ALL(trunc, std::trunc(x), std::trunc(x))
HEARTH_OF_ALL(fract, x - std::floor(x), x - std::floor(x))
HEARTH_OF_ALL(rndne, std::nearbyint(x), std::nearbyint(x))
HEARTH_OF_ALL(sqrt, std::sqrt(x), std::sqrt(x))
// The hardware's are right to about one unit in the last place and flush denormal numbers of 32 bits.
inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }
HEARTH_OF_ALL(rcp, flushed(1.0f / flushed(x)), 1.0 / x)
HEARTH_OF_ALL(rsq, 1.0f / std::sqrt(flushed(x)), 1.0 / std::sqrt(x))
HEARTH_OF_ALL(exp2, flushed(static_cast<float>(std::exp2(static_cast<double>(flushed(x))))), std::exp2(x))
HEARTH_OF_ALL(log2, static_cast<float>(std::log2(static_cast<double>(flushed(x)))), std::log2(x))
HEARTH_OF_ALL(sin_turns, static_cast<float>(std::sin(x * 6.283185307179586)), std::sin(x * 6.283185307179586))
HEARTH_OF_ALL(cos_turns, static_cast<float>(std::cos(x * 6.283185307179586)), std::cos(x * 6.283185307179586))
#undef HEARTH_OF_ALL

inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
inline double fma(double a, double b, double c) { return std::fma(a, b, c); }
inline Half fma(Half a, Half b, Half c) { return Half(static_cast<double>(float{a}) * float{b} + float{c}); }
inline float ldexp(float x, int n) { return std::ldexp(x, n); }
inline double ldexp(double x, int n) { return std::ldexp(x, n); }
inline Half ldexp(Half x, int n) { return Half(std::ldexp(static_cast<double>(float{x}), n)); }

inline float f16_to_f32(Half x) { return x; }
inline Half f32_to_f16(float x) { return Half(x); }
inline float f64_to_f32(double x) { return static_cast<float>(x); }
inline double f32_to_f64(float x) { return x; }
inline float i32_to_f32(int32_t x) { return static_cast<float>(x); }
inline float u32_to_f32(uint32_t x) { return static_cast<float>(x); }
inline double i32_to_f64(int32_t x) { return x; }
inline double u32_to_f64(uint32_t x) { return x; }
inline Half i16_to_f16(int16_t x) { return Half(static_cast<float>(x)); }
inline Half u16_to_f16(uint16_t x) { return Half(static_cast<float>(x)); }
/// Integers take the nearest value towards zero that they can hold; no number becomes 0.
template <typename To>
To saturated(double x) {
  if (x != x) return 0;
  constexpr To low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
  return x <= static_cast<double>(low) ? low : x >= static_cast<double>(high) ? high : static_cast<To>(x);
}
inline int32_t f32_to_i32(float x) { return saturated<int32_t>(x); }
inline uint32_t f32_to_u32(float x) { return saturated<uint32_t>(x); }
inline int32_t f64_to_i32(double x) { return saturated<int32_t>(x); }
inline uint32_t f64_to_u32(double x) { return saturated<uint32_t>(x); }
inline int16_t f16_to_i16(Half x) { return saturated<int16_t>(float{x}); }
inline uint16_t f16_to_u16(Half x) { return saturated<uint16_t>(float{x}); }
inline int16_t i32_to_i16(int32_t x) { return saturated<int16_t>(x); }
inline uint16_t u32_to_u16(uint32_t x) { return saturated<uint16_t>(x); }
inline uint32_t u8_to_u32(uint8_t x) { return x; }
inline uint32_t u4_to_u32(uint8_t x) { return x & 15; }
inline float bf16_to_f32(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

#define HEARTH_LEAST(suffix, type)                                     \
  inline type v_min_##suffix(type a, type b) { return a < b ? a : b; } \
  inline type v_max_##suffix(type a, type b) { return a < b ? b : a; }
HEARTH_LEAST(i32, int32_t)
HEARTH_LEAST(u32, uint32_t)
HEARTH_LEAST(i16, int16_t)
HEARTH_LEAST(u16, uint16_t)
#undef HEARTH_LEAST
inline float v_min_f32(float a, float b) { return std::fmin(a, b); }
inline float v_max_f32(float a, float b) { return std::fmax(a, b); }
inline float v_min_num_f32(float a, float b) { return std::fmin(a, b); }
inline float v_max_num_f32(float a, float b) { return std::fmax(a, b); }
inline Half v_min_f16(Half a, Half b) { return Half(std::fmin(float{a}, float{b})); }
inline Half v_max_f16(Half a, Half b) { return Half(std::fmax(float{a}, float{b})); }
inline Half v_min_num_f16(Half a, Half b) { return v_min_f16(a, b); }
inline Half v_max_num_f16(Half a, Half b) { return v_max_f16(a, b); }

}  // namespace machine_code
