#pragma once

#include "backend/gpu/rt.h"
#if !defined(__HIPCC__) && !defined(__CUDACC__)
#include "backend/gpu/emu/matrix.h"
#endif

/// Matrix instructions used by rt_tile.h, on the words of a lane's fragments.
namespace hearth::rt {

/// Address in shared memory.
#if defined(__CUDACC__) && !defined(__HIPCC__)
using SharedAddress = uint32_t;
RT_DEVICE SharedAddress shared_address(const std::byte* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}
#else
using SharedAddress = uintptr_t;
RT_DEVICE SharedAddress shared_address(const std::byte* at) { return reinterpret_cast<uintptr_t>(at); }
#endif

/// A register of each lane that the other lanes of its half-warp may read.
#if defined(__HIPCC__) || defined(__CUDACC__)
using LaneRegister = uint32_t;
RT_DEVICE LaneRegister show(uint32_t word) { return word; }
#else
using LaneRegister = emu::LaneRegister;
inline LaneRegister show(uint32_t word) { return emu::show(word); }
#endif
/// c += a(lane `from` of the half-warp) * b, for floats.
template <int from>
RT_DEVICE void add_product(float& c, LaneRegister a, uint32_t b);
/// c += dot product of a (of lane `from` of the half-warp) and b, which are pairs of f16.
template <int from>
RT_DEVICE void add_dot(float& c, LaneRegister a, uint32_t b);
/// c[8] += a * b for a 16 x 16 x 16 tile, by one WMMA instruction. Only if path (RT_TILE) is 11 or 12.
template <typename T, int path>
RT_DEVICE void multiply_wave(float* c, const uint32_t* a, const uint32_t* b);
/// c[4] += a (16 x 16) * b (16 x 8), by mma.sync. Only if RT_TILE is 90.
template <typename T>
RT_DEVICE void multiply_half(float* c, const uint32_t* a, uint32_t b0, uint32_t b1);
/// Loads a lane's four words of a 16-bit tile from shared memory (PTX ISA, "ldmatrix"). Lane 8 * i + j passes
/// the address of the 16-byte row j of the 8 x 8 matrix i. Of each matrix the lane gets two adjacent elements
/// of row lane / 4; with `across`, of column lane / 4. Only if RT_TILE is 90.
template <bool across>
RT_DEVICE void load_slots(uint32_t* words, SharedAddress slot);
/// Copies 4, 8 or 16 bytes to shared memory, or writes zeros if `there` is false; asynchronously where
/// supported (PTX ISA, "cp.async"). The bytes are visible to the thread after wait_copies<groups>(), which
/// waits for all but the last `groups` groups of copies.
template <int num_bytes>
RT_DEVICE void copy_beside(void* to, const void* from, bool there);
RT_DEVICE void end_copy_group();
template <int groups>
RT_DEVICE void wait_copies();

/// Returns a word of four bytes selected from two words: each byte of the selector is 0 to 3 for a byte of
/// `low`, 4 to 7 for a byte of `high`.
RT_DEVICE uint32_t bytes_of(uint32_t low, uint32_t high, uint32_t selector) {
#if defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_perm(high, low, selector);
#elif defined(__CUDACC__)
  return __byte_perm(
      low, high,
      selector >> 24 << 12 | (selector >> 8 & 0xf00U) | (selector >> 4 & 0xf0U) | (selector & 0xfU));
#else
  const uint64_t both = uint64_t{high} << 32 | low;
  uint32_t made = 0;
  for (int i = 0; i < 4; ++i)
    made |= static_cast<uint32_t>(both >> (selector >> 8 * i & 7U) * 8 & 0xffU) << 8 * i;
  return made;
#endif
}
/// Selectors for bytes_of() that combine the lower, or the upper, 16-bit halves of two words.
inline constexpr uint32_t kLowHalves = 0x05040100, kHighHalves = 0x07060302;

#if defined(__HIP_DEVICE_COMPILE__)
/// Returns the value of the lane with the same position in the other half-warp (lane ^ 16).
RT_DEVICE uint32_t of_other_half(uint32_t value) {
  constexpr uint32_t kLower = 0x76543210, kUpper = 0xfedcba98;  // identity permutation of the lanes
  uint32_t other = __builtin_amdgcn_permlanex16(value, value, kLower, kUpper, true, false);
  // Prevents clang 17 from moving the exchange into a branch in which the other lanes are inactive.
  asm volatile("" : "+v"(other));
  return other;
}
/// Scheduling barrier: keeps the compiler from moving later loads before it, which would need too many
/// registers. With a value, also keeps the computation of that value from moving after it.
RT_DEVICE void keep_order() { __builtin_amdgcn_sched_barrier(0); }
RT_DEVICE void keep_order(float& value) {
  asm volatile("" : "+v"(value) : : "memory");
  keep_order();
}
/// Returns the value without what the compiler has derived from it: values computed from the result are
/// recomputed here, instead of being kept in registers across a loop. The value must not be negative.
RT_DEVICE int opaque_value(int value) {
  asm volatile("" : "+v"(value));
  __builtin_assume(value >= 0);
  return value;
}
/// Like opaque_value(), for a value that is uniform across a warp.
RT_DEVICE int opaque_uniform(int value) {
  asm volatile("" : "+s"(value));
  return value;
}
/// Like opaque_value(), for a 32-bit word in place.
RT_DEVICE void renew(uint32_t& word) { asm volatile("" : "+v"(word)); }
/// Moves a value that is uniform across a warp to a scalar register.
RT_DEVICE int uniform_value(int value) { return __builtin_amdgcn_readfirstlane(value); }
/// Keeps the compiler from extracting parts of the word right after its load: that would wait for the load
/// too early.
RT_DEVICE void keep_whole(Word16& word) {
  auto parts = bits_as<Vec<uint32_t, 4>>(word);
  asm volatile("" : "+v"(parts.at[0]), "+v"(parts.at[1]), "+v"(parts.at[2]), "+v"(parts.at[3]));
  word = bits_as<Word16>(parts);
}
#else
RT_DEVICE uint32_t of_other_half(uint32_t value) { return shuffle_xor(value, 16); }
RT_DEVICE void keep_order() {}
RT_DEVICE void keep_order(float&) {}
RT_DEVICE int opaque_value(int value) { return value; }
RT_DEVICE int opaque_uniform(int value) { return value; }
RT_DEVICE void renew(uint32_t&) {}
RT_DEVICE int uniform_value(int value) { return value; }
RT_DEVICE void keep_whole(Word16&) {}
#endif

#if defined(__HIPCC__)

#if defined(__HIP_DEVICE_COMPILE__)
template <int from>
RT_DEVICE void add_product(float& c, uint32_t a, uint32_t b) {
  asm("v_fmac_f32_dpp %0, %1, %2 row_share:%3 row_mask:0xf bank_mask:0xf"
      : "+v"(c)
      : "v"(a), "v"(b), "n"(from));
}
template <int from>
RT_DEVICE void add_dot(float& c, uint32_t a, uint32_t b) {
  asm("v_dot2c_f32_f16_dpp %0, %1, %2 row_share:%3 row_mask:0xf bank_mask:0xf"
      : "+v"(c)
      : "v"(a), "v"(b), "n"(from));
}
#else
template <int from>
RT_DEVICE void add_product(float&, uint32_t, uint32_t) {}
template <int from>
RT_DEVICE void add_dot(float&, uint32_t, uint32_t) {}
#endif

template <typename Vector, typename Word>
RT_DEVICE Vector vector_of(const Word* words) {
  Vector made;
  __builtin_memcpy(&made, words, sizeof made);
  return made;
}

template <typename T, int path>
RT_DEVICE void multiply_wave(float* c, const uint32_t* a, const uint32_t* b) {
#if defined(__GFX11__) || defined(__GFX12__)
  constexpr int kPairs = path == 11 ? 8 : 4;
  using Number = std::conditional_t<std::is_same_v<T, f16>, _Float16, short>;
  using Numbers = Number __attribute__((ext_vector_type(2 * kPairs)));
  using Sums = float __attribute__((ext_vector_type(8)));
  const Numbers left = vector_of<Numbers>(a), right = vector_of<Numbers>(b);
  Sums sums = vector_of<Sums>(c);
  if constexpr (std::is_same_v<T, f16>) {
#if defined(__GFX12__)
    sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(left, right, sums);
#else
    sums = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(left, right, sums);
#endif
  } else {
#if defined(__GFX12__)
    sums = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(left, right, sums);
#else
    sums = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(left, right, sums);
#endif
  }
  __builtin_memcpy(c, &sums, sizeof sums);
#endif
}

#elif defined(__CUDACC__)

template <bool across>
RT_DEVICE void load_slots(uint32_t* words, SharedAddress address) {
  if constexpr (across) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address));
  }
}
template <int num_bytes>
RT_DEVICE void copy_beside(void* to, const void* from, bool there) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int num_read = there ? num_bytes : 0;
  if constexpr (num_bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(__cvta_generic_to_global(from)), "r"(num_read)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(address), "l"(__cvta_generic_to_global(from)), "n"(num_bytes), "r"(num_read)
                 : "memory");
  }
}
RT_DEVICE void end_copy_group() { asm volatile("cp.async.commit_group;" : : : "memory"); }
template <int groups>
RT_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" : : "n"(groups) : "memory");
}
template <int from>
RT_DEVICE void add_product(float& c, uint32_t a, uint32_t b) {
  c += __uint_as_float(__shfl_sync(kEveryLane, a, from, 16)) * __uint_as_float(b);
}
template <typename T>
RT_DEVICE void multiply_half(float* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, f16>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

#else

template <bool across>
void load_slots(uint32_t* words, SharedAddress slot) {
  const int row = lane() / 4, two = lane() % 4 * 2;
  const auto slot_of = [&](int from) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the address was computed by exclusive or.
    return reinterpret_cast<const uint16_t*>(shuffle(slot, from));
  };
  for (int i = 0; i < 4; ++i) {
    const uint16_t* first = slot_of(8 * i + (across ? two : row));
    const uint16_t* second = slot_of(8 * i + (across ? two + 1 : row));
    words[i] = uint32_t{first[across ? row : two]} | uint32_t{second[across ? row : two + 1]} << 16;
  }
}
template <int from>
void add_product(float& c, LaneRegister a, uint32_t b) {
  c += bits_as<float>(emu::row_share(a, from)) * bits_as<float>(b);
}
template <int from>
void add_dot(float& c, LaneRegister a, uint32_t b) {
  c = emu::dot2(emu::row_share(a, from), b, c);
}
template <typename T, int path>
void multiply_wave(float* c, const uint32_t* a, const uint32_t* b) {
  emu::wmma<path>(emu::Numbers{.are_f16 = std::is_same_v<T, f16>}, c, a, b);
}
template <typename T>
void multiply_half(float* c, const uint32_t* a, uint32_t b0, uint32_t b1) {
  emu::mma_m16n8k16(emu::Numbers{.are_f16 = std::is_same_v<T, f16>}, c, a, b0, b1);
}

#endif

#if defined(__HIPCC__) || !defined(__CUDACC__)
template <int num_bytes>
RT_DEVICE void copy_beside(void* to, const void* from, bool there) {
  if (there) {
    __builtin_memcpy(to, from, num_bytes);
  } else {
    __builtin_memset(to, 0, num_bytes);
  }
}
RT_DEVICE void end_copy_group() {}
template <int groups>
RT_DEVICE void wait_copies() {}
#endif

template <typename T>
RT_DEVICE void multiply_halves(float* c, const uint32_t* a, const uint32_t* b) {
  multiply_half<T>(c, a, b[0], b[1]);
  multiply_half<T>(c + 4, a, b[2], b[3]);
}

/// Returns the first (`second`: the second) bf16 of a pair as the bits of a float.
RT_DEVICE uint32_t widened(uint32_t pair, bool second) { return second ? pair & 0xffff0000U : pair << 16; }

template <bool dot, int from>
RT_DEVICE void add_row(float* c, LaneRegister rows, uint32_t b) {
  if constexpr (dot) {
    add_dot<from>(c[from], rows, b);
  } else {
    add_product<from>(c[from], rows, b);
  }
}

/// Adds the products of one register of each operand. The half-warp's first eight lanes hold the eight rows.
template <bool dot>
RT_DEVICE void add_registers(float* c, uint32_t a, uint32_t b) {
  const LaneRegister rows = show(a);
  add_row<dot, 0>(c, rows, b);
  add_row<dot, 1>(c, rows, b);
  add_row<dot, 2>(c, rows, b);
  add_row<dot, 3>(c, rows, b);
  add_row<dot, 4>(c, rows, b);
  add_row<dot, 5>(c, rows, b);
  add_row<dot, 6>(c, rows, b);
  add_row<dot, 7>(c, rows, b);
}

template <typename T>
RT_DEVICE void multiply_lanes(float* c, const uint32_t* a, const uint32_t* b) {
  constexpr int kWords = static_cast<int>(16 * sizeof(T) / 4);
  RT_UNROLL
  for (int w = 0; w < kWords; ++w) {
    if constexpr (std::is_same_v<T, bf16>) {
      add_registers<false>(c, widened(a[w], false), widened(b[w], false));
      add_registers<false>(c, widened(a[w], true), widened(b[w], true));
    } else {
      add_registers<std::is_same_v<T, f16>>(c, a[w], b[w]);
    }
  }
  keep_order();
}

}  // namespace hearth::rt
