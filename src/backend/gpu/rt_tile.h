#pragma once

#include "backend/gpu/rt.h"

/// Matmuls of 16 x 16 tiles by a warp: one interface over each GPU's matrix instruction.
///
///   rt::Acc<T> c;                      c(i, j) = 0
///   const auto left = rt::load_side<T, Side::left>(a, a_stride);
///   const auto right = rt::load_side<T, Side::right>(b, b_stride);
///   rt::multiply_add(c, left, right);  c(i, j) += sum over t of a(i, t) b(t, j)
///   for (int e = 0; e < 8; ++e) out[c.row(e)][c.column(e)] = c.at[e];
///
/// T is bf16, f16 or float; sums are f32. a(i, t) is at a[i * a_stride + t], b(t, j) at b[j * b_stride + t]:
/// the 16 terms of a line (a row of a, a column of b) are contiguous, and each line is aligned to 16 bytes.
/// All lanes must call these together; what they load must have been synchronized.
///
/// RT_TILE selects the instruction, by default from the target:
///   10  RDNA2: dot products and multiply-adds whose left operand comes from another lane (DPP row_share)
///   11  RDNA3: v_wmma, every line held twice         12  RDNA4: v_wmma, every line held once
///   90  NVIDIA (from sm_80): mma.sync m16n8k16, twice
/// The host compiler emulates the instruction, not the tile: loads and layouts are the GPU's.
/// float has no lossless matrix instruction: it uses path 10 everywhere.
#if !defined(RT_TILE)
#if defined(__HIPCC__) && defined(__GFX12__)
#define RT_TILE 12
#elif defined(__HIPCC__) && defined(__GFX10__)
#define RT_TILE 10
#elif defined(__CUDACC__) && !defined(__HIPCC__)
#define RT_TILE 90
#else
#define RT_TILE 11
#endif
#endif

#include "backend/gpu/rt_matrix.h"

namespace hearth::rt {

#if !defined(__HIPCC__) && !defined(__CUDACC__)
[[maybe_unused]] static const bool kIsOnlyTile = emu::expect_one_tile(RT_TILE);
#endif

inline constexpr int kTile = 16;
/// Number of bytes of shared memory that a block may declare statically.
inline constexpr int kSharedBytes = (RT_TILE == 90 ? 48 : 64) * 1024;
/// Number of elements of a 16 x 16 product that a lane holds.
inline constexpr int kLaneElements = 8;
/// Left or right operand of a matmul.
enum class Side : uint8_t { left, right };

/// Fragment layout of a matrix instruction. A lane holds its part of the operand as kRuns runs of kRun
/// contiguous terms: run r is in line(side, r) and starts at term(r). Element e of the product is at (row(e),
/// column(e)). The last argument of each function is the lane.
template <int path>
struct Layout;

/// Layout for multiply-adds without matrix instructions: a lane holds one column of the right operand. Each
/// row that a half-warp needs is held by a lane of the same half-warp.
template <>
struct Layout<10> {
  static constexpr int kTerms = kTile;
  RT_DEVICE static int line(Side side, int, int lane) {
    return side == Side::left ? lane / 16 * 8 + lane % 8 : lane % 16;
  }
  template <int kRun>
  RT_DEVICE static int term(Side, int run, int) {
    return run * kRun;
  }
  RT_DEVICE static int row(int e, int lane) { return lane / 16 * 8 + e; }
  RT_DEVICE static int column(int, int lane) { return lane % 16; }
};

/// Layout of WMMA on RDNA3 with 32 lanes (RDNA3 ISA guide, section 7.9).
template <>
struct Layout<11> {
  static constexpr int kTerms = kTile;
  RT_DEVICE static int line(Side, int, int lane) { return lane % 16; }
  template <int kRun>
  RT_DEVICE static int term(Side, int run, int) {
    return run * kRun;
  }
  RT_DEVICE static int row(int e, int lane) { return 2 * e + lane / 16; }
  RT_DEVICE static int column(int, int lane) { return lane % 16; }
};

/// Layout of WMMA on RDNA4 with 32 lanes (RDNA4 ISA guide, section 7.12).
template <>
struct Layout<12> {
  static constexpr int kTerms = kTile / 2;
  RT_DEVICE static int line(Side, int, int lane) { return lane % 16; }
  template <int kRun>
  RT_DEVICE static int term(Side, int run, int lane) {
    return lane / 16 * 8 + run * kRun;
  }
  RT_DEVICE static int row(int e, int lane) { return lane / 16 * 8 + e; }
  RT_DEVICE static int column(int, int lane) { return lane % 16; }
};

/// Layout of mma.m16n8k16 (PTX ISA, "Matrix fragments for mma.m16n8k16"). Columns 0 to 7 and 8 to 15 are
/// computed by two instructions, whose right operands are two adjacent runs each.
template <>
struct Layout<90> {
  static constexpr int kTerms = kTile / 2;
  RT_DEVICE static int line(Side side, int run, int lane) {
    return lane / 4 + (side == Side::left ? run % 2 : run / 2) * 8;
  }
  template <int kRun>
  RT_DEVICE static int term(Side side, int run, int lane) {
    static_assert(kRun == 2);
    return lane % 4 * 2 + (side == Side::left ? run / 2 : run % 2) * 8;
  }
  RT_DEVICE static int row(int e, int lane) { return lane / 4 + e / 2 % 2 * 8; }
  RT_DEVICE static int column(int e, int lane) { return lane % 4 * 2 + e % 2 + e / 4 * 8; }
};

template <typename T>
inline constexpr int kPathOf = RT_TILE;
template <>
inline constexpr int kPathOf<float> = 10;

/// A lane's part of the left or right operand of a tile product.
template <typename T, Side side, int path = kPathOf<T>>
struct Fragment {
  using Held = Layout<path>;
  static constexpr int kRun = path == 90 ? 2 : static_cast<int>(16 / sizeof(T));
  static constexpr int kRuns = Held::kTerms / kRun;
  static constexpr int kWords = Held::kTerms * static_cast<int>(sizeof(T)) / 4;
  uint32_t words[kWords];
};

/// Loads a fragment. place(line, term) returns the address of an element. Terms must be contiguous in aligned
/// groups of 16 / sizeof(T).
template <typename T, Side side, int path = kPathOf<T>, typename Place>
RT_DEVICE Fragment<T, side, path> load_side(const Place& place, int lane = rt::lane()) {
  using Made = Fragment<T, side, path>;
  Made made;
  RT_UNROLL
  for (int r = 0; r < Made::kRuns; ++r) {
    const T* run =
        place(Made::Held::line(side, r, lane), Made::Held::template term<Made::kRun>(side, r, lane));
    const auto read = load<T, Made::kRun>(run);
    __builtin_memcpy(&made.words[r * Made::kWords / Made::kRuns], &read, sizeof read);
  }
  return made;
}
template <typename T, Side side, int path = kPathOf<T>>
RT_DEVICE Fragment<T, side, path> load_side(const T* from, int stride) {
  return load_side<T, side, path>([&](int line, int term) { return from + line * stride + term; });
}
/// A lane's f32 accumulators of a tile product.
template <typename T, int path = kPathOf<T>>
struct Acc {
  float at[kLaneElements] = {};
  RT_DEVICE static int row(int e, int lane = rt::lane()) { return Layout<path>::row(e, lane); }
  RT_DEVICE static int column(int e, int lane = rt::lane()) { return Layout<path>::column(e, lane); }
};

template <typename T, int path>
RT_DEVICE void multiply_add(Acc<T, path>& c, const Fragment<T, Side::left, path>& a,
                            const Fragment<T, Side::right, path>& b) {
  if constexpr (path == 90) {
    multiply_halves<T>(c.at, a.words, b.words);
  } else if constexpr (path == 10) {
    multiply_lanes<T>(c.at, a.words, b.words);
  } else {
    multiply_wave<T, path>(c.at, a.words, b.words);
  }
}

/// A product in chained matmuls, as in attention. A warp holds 16 lines of the stationary operand, and lines
/// of the streamed operand are loaded one tile after another. Whether the stationary operand is the left or
/// the right one depends on the path: such that the product becomes the stationary operand of the next matmul
/// with little or no exchange between lanes. Accumulator element e belongs to the lines stationary(e) and
/// streamed(e).
template <int path>
inline constexpr Side kStationarySide = path == 90 ? Side::left : Side::right;
template <int path>
inline constexpr Side kStreamedSide = path == 90 ? Side::right : Side::left;

template <typename T, int path = kPathOf<T>>
struct StationaryAcc : Acc<T, path> {
  RT_DEVICE static int stationary(int e, int lane = rt::lane()) {
    return path == 90 ? Layout<path>::row(e, lane) : Layout<path>::column(e, lane);
  }
  RT_DEVICE static int streamed(int e, int lane = rt::lane()) {
    return path == 90 ? Layout<path>::column(e, lane) : Layout<path>::row(e, lane);
  }
};
template <typename T, int path = kPathOf<T>>
using StationaryFragment = Fragment<T, kStationarySide<path>, path>;
template <typename T, int path = kPathOf<T>>
using StreamedFragment = Fragment<T, kStreamedSide<path>, path>;

template <typename T, int path>
RT_DEVICE void multiply_add(StationaryAcc<T, path>& c, const StationaryFragment<T, path>& stationary,
                            const StreamedFragment<T, path>& streamed) {
  Acc<T, path>& sums = c;
  if constexpr (path == 90) {
    multiply_add(sums, stationary, streamed);
  } else {
    multiply_add(sums, streamed, stationary);
  }
}

/// One value for each stationary line of which the lane holds elements. [e] is the value for the line of
/// element e.
template <typename T, typename Value = float, int path = kPathOf<T>>
struct PerStationary {
  static constexpr int kCount = path == 90 ? 2 : 1;
  Value at[kCount];
  RT_DEVICE Value& operator[](int e) { return at[path == 90 ? e / 2 % 2 : 0]; }
  RT_DEVICE Value operator[](int e) const { return at[path == 90 ? e / 2 % 2 : 0]; }
  /// Index of an accumulator element in the line that at[i] belongs to.
  RT_DEVICE static constexpr int element(int i) { return 2 * i; }

  /// Reduces by `op` over the lanes that hold elements of the same line.
  template <typename Op>
  RT_DEVICE void join_lanes(Op op) {
    if constexpr (path == 90) {
      RT_UNROLL
      for (int i = 0; i < 2; ++i) {
        at[i] = op(at[i], shuffle_xor(at[i], 1));
        at[i] = op(at[i], shuffle_xor(at[i], 2));
      }
    } else {
      at[0] = op(at[0], bits_as<float>(of_other_half(bits_as<uint32_t>(at[0]))));
    }
  }
};

/// Packs two numbers into a word. For a NaN as bf16 on AMD GPUs, only the upper 16 bits are kept: arithmetic
/// sets no others. NVIDIA GPUs convert exactly.
template <typename T>
RT_DEVICE uint32_t packed(float first, float second) {
#if defined(__CUDACC__) && !defined(__HIPCC__)
  if constexpr (std::is_same_v<T, bf16>) return pack_bf16(first, second);
  if constexpr (std::is_same_v<T, f16>) return pack_f16(first, second);
#endif
  if constexpr (std::is_same_v<T, bf16> && RT_TILE != 90) {
    const auto rounded = [](float value) {
      const auto bits = bits_as<uint32_t>(value);
      return bits + 0x7fffU + (bits >> 16 & 1U);
    };
    return bytes_of(rounded(first), rounded(second), kHighHalves);
  } else {
    return uint32_t{from_float<T>(first).bits} | uint32_t{from_float<T>(second).bits} << 16;
  }
}

/// Rounds an accumulator tile to T and rearranges it as the stationary operand of the next matmul, whose
/// terms are the streamed lines.
template <typename T, int path>
RT_DEVICE StationaryFragment<T, path> stationary_of(const StationaryAcc<T, path>& c) {
  using Made = StationaryFragment<T, path>;
  constexpr int kLaneWords = static_cast<int>(kLaneElements * sizeof(T) / 4);
  uint32_t lane_words[kLaneWords];
  RT_UNROLL
  for (int w = 0; w < kLaneWords; ++w) {
    if constexpr (sizeof(T) == 4) {
      lane_words[w] = bits_as<uint32_t>(c.at[w]);
    } else {
      lane_words[w] = packed<T>(c.at[2 * w], c.at[2 * w + 1]);
    }
  }
  Made made;
  if constexpr (path == 90 || path == 12) {
    made = {{lane_words[0], lane_words[1], lane_words[2], lane_words[3]}};
  } else {
    // Byte selectors that put the words of the lower half-warp first.
    constexpr uint32_t kSwapped = 0x04040404;
    const uint32_t order = lane() < 16 ? 0 : kSwapped;
    RT_UNROLL
    for (int w = 0; w < kLaneWords; ++w) {
      const uint32_t other = of_other_half(lane_words[w]);
      if constexpr (path == 10) {
        made.words[w] = lane() < 16 ? lane_words[w] : other;
        made.words[kLaneWords + w] = lane() < 16 ? other : lane_words[w];
      } else {
        made.words[2 * w] = bytes_of(lane_words[w], other, kLowHalves ^ order);
        made.words[2 * w + 1] = bytes_of(lane_words[w], other, kHighHalves ^ order);
      }
    }
  }
  return made;
}

/// Calls body(stationary line, first streamed line, elements) for runs of contiguous elements that together
/// cover the tile, each exactly once in the warp.
template <typename T, int path = kPathOf<T>, typename Body>
RT_DEVICE void for_each_run(const StationaryFragment<T, path>& tile, Body body) {
  using Held = StationaryFragment<T, path>;
  // On these paths both half-warps hold all terms, so each handles half of the runs.
  constexpr int kShare = path == 10 || path == 11 ? 2 : 1, kRuns = Held::kRuns / kShare;
  constexpr int kWords = Held::kWords / Held::kRuns;
  const bool upper = kShare == 2 && lane() >= 16;
  RT_UNROLL
  for (int r = 0; r < kRuns; ++r) {
    Vec<uint32_t, kWords> words;
    RT_UNROLL
    for (int w = 0; w < kWords; ++w) {
      const uint32_t low = tile.words[r * kWords + w];
      const uint32_t high = tile.words[((kShare - 1) * kRuns + r) * kWords + w];
      words.at[w] = upper ? high : low;
    }
    const int run = upper ? kRuns + r : r;
    body(Held::Held::line(kStationarySide<path>, r, lane()),
         Held::Held::template term<Held::kRun>(kStationarySide<path>, run, lane()),
         bits_as<Vec<T, Held::kRun>>(words));
  }
}

}  // namespace hearth::rt
