#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "backend/gpu/emu/grid.h"
#include "backend/gpu/emu/stream.h"
#include "base/dtype.h"

/// rt.h for the host compiler: see backend/gpu/emu/.
// NOLINTBEGIN(bugprone-reserved-identifier): the names are HIP's and CUDA's.
#define __global__
#define __launch_bounds__(...)
// NOLINTEND(bugprone-reserved-identifier)
#define threadIdx (::hearth::emu::running.thread)
#define blockIdx (::hearth::emu::running.block)
#define blockDim (::hearth::emu::running.threads)
#define gridDim (::hearth::emu::running.blocks)

#define RT_DEVICE inline
#define RT_UNROLL
#define RT_NO_UNROLL
#define RT_SHARED(name, ...)         \
  using name##_shared = __VA_ARGS__; \
  static const char name##_key = 0;  \
  name##_shared& name =              \
      *static_cast<name##_shared*>(::hearth::emu::shared(&name##_key, sizeof(name##_shared)))
// NOLINTNEXTLINE(bugprone-macro-parentheses): T is a type.
#define RT_DYNAMIC_SHARED(T, name) T* name = static_cast<T*>(::hearth::emu::dynamic_shared())

namespace hearth::rt {

inline constexpr int kWarp = emu::kWarpThreads;
using Dim3 = emu::Dim3;
using Word4 __attribute__((may_alias)) = uint32_t;
using Word8 __attribute__((may_alias)) = uint64_t;
struct __attribute__((may_alias, aligned(16))) Word16 {
  uint32_t words[4];
};

inline float f16_bits_to_float(uint16_t bits) { return to_f32(hearth::f16{bits}); }
inline uint16_t float_to_f16_bits(float value) { return to_f16(value).bits; }

inline float multiply_then_add(float a, float b, float c) {
  const float product = a * b;
  return product + c;
}

inline float fast_exp(float x) { return std::exp(x); }
inline float fast_exp2(float x) { return std::exp2(x); }
inline float larger(float a, float b) { return a > b ? a : b; }
inline int lane() { return emu::lane(); }
inline int warp() { return static_cast<int>(threadIdx.x) / 32; }
inline void sync_block(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emu::barrier({file, line});
}
inline void sync_warp(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  emu::post(nullptr, 0, {file, line});
}

/// Returns the value of the lane with index `from` modulo 32.
template <typename T>
T shuffle(T value, int from, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  const std::byte* slots = emu::post(&value, sizeof value, {file, line});
  std::memcpy(&value, slots + static_cast<size_t>(from & (kWarp - 1)) * emu::kSlotBytes, sizeof value);
  return value;
}
template <typename T>
T shuffle_xor(T value, int mask, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return shuffle(value, lane() ^ mask, file, line);
}
/// Returns the value of the lane whose index is higher by `by`; the lane's own value if there is no such
/// lane.
template <typename T>
T shuffle_down(T value, int by, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return shuffle(value, lane() + by < kWarp ? lane() + by : lane(), file, line);
}
/// Returns a mask in which bit i is lane i's `yes`.
inline uint32_t ballot(bool yes, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const std::byte* slots = emu::post(&yes, sizeof yes, {file, line});
  uint32_t all = 0;
  for (size_t i = 0; i < kWarp; ++i)
    all |= static_cast<uint32_t>(slots[i * emu::kSlotBytes] != std::byte{0}) << i;
  return all;
}

inline int lowest_bit(uint32_t mask) { return std::countr_zero(mask); }

/// Grid and block dimensions, and bytes of RT_DYNAMIC_SHARED.
struct Shape {
  Dim3 blocks;
  Dim3 threads;
  int64_t shared_bytes;
  emu::Site site;

  Shape(int64_t num_blocks, int64_t num_threads, int64_t dynamic_shared_bytes = 0,
        const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : Shape(Dim3{static_cast<unsigned>(num_blocks)}, Dim3{static_cast<unsigned>(num_threads)},
              dynamic_shared_bytes, file, line) {}
  Shape(Dim3 grid, Dim3 block, int64_t dynamic_shared_bytes = 0, const char* file = __builtin_FILE(),
        int line = __builtin_LINE())
      : blocks(grid), threads(block), shared_bytes(dynamic_shared_bytes), site{file, line} {}
};

/// Queues the kernel on the stream.
template <typename... P>
void launch(void (*kernel)(P...), const Shape& shape, void* stream, std::type_identity_t<P>... args) {
  const emu::Grid grid{.blocks = shape.blocks,
                       .threads = shape.threads,
                       .dynamic_shared_bytes = shape.shared_bytes,
                       .launched = shape.site};
  static_cast<emu::Stream*>(stream)->launch(grid, [=] { kernel(args...); });
}

}  // namespace hearth::rt
