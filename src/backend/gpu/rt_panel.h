#pragma once

#include "backend/gpu/rt_tile.h"

/// Operand panels in shared memory, swizzled against bank conflicts. A panel holds 64 bytes of each of its
/// lines (rows of the left operand, columns of the right), two lines per 128-byte row of shared memory, which
/// spans all banks once: eight slots of 16 bytes. The order of slots is permuted by an exclusive or that
/// depends on the row, so that no access of a warp hits a bank twice: reading one slot of eight lines,
/// writing all slots of two lines, or writing one word of every eighth line.
namespace hearth::rt {

/// Number of elements in a slot of 16 bytes, and along k in a panel of 64 bytes per line.
template <typename T>
inline constexpr int kWide = static_cast<int>(16 / sizeof(T));
template <typename T>
inline constexpr int kPanelTerms = static_cast<int>(64 / sizeof(T));

/// True if fragments are loaded from panels by ldmatrix and panels are filled by asynchronous copies.
template <typename T>
inline constexpr bool kLoadsSlots = kPathOf<T> == 90;

/// Maps bytes of a line to offsets in a panel; all masks are combined by exclusive or.
struct Swizzle {
  static constexpr uint32_t kSlotBytes = 16, kLineBytes = 64, kRowBytes = 2 * kLineBytes;
  static constexpr uint32_t kTileBytes = kTile * kLineBytes;
  static constexpr int kSlots = kLineBytes / kSlotBytes;

  /// Returns the byte offset of a line's first slot in its tile; slot s is at that ^ (s * kSlotBytes).
  RT_DEVICE static uint32_t of_line(int line) {
    const uint32_t row = static_cast<uint32_t>(line) % kTile / 2;
    return row * kRowBytes + (static_cast<uint32_t>(line) % 2 * kSlots ^ row ^ row / 4) * kSlotBytes;
  }
  /// Returns the exclusive-or mask of all slot offsets of a tile.
  RT_DEVICE static uint32_t of_tile(int tile) { return static_cast<uint32_t>(tile) % 4 * 2 * kSlotBytes; }
  /// Returns the exclusive-or mask from a line's offset to that of the line `line` further. Valid if the
  /// first line's index is a multiple of the number of elements per slot and `line` is smaller than it.
  RT_DEVICE static constexpr uint32_t of_next(int line) {
    const auto row = static_cast<uint32_t>(line / 2);
    return row * kRowBytes + (static_cast<uint32_t>(line % 2 * kSlots) ^ row) * kSlotBytes;
  }
  /// Returns the offset of a byte of a line. The pattern repeats every four tiles, 4 * kTileBytes further.
  RT_DEVICE static uint32_t at(int line, int byte) {
    const int tile = line / kTile;
    const auto offset = static_cast<uint32_t>(byte);
    return static_cast<uint32_t>(tile) * kTileBytes +
           (of_line(line) ^ of_tile(tile) ^ offset / kSlotBytes * kSlotBytes) + offset % kSlotBytes;
  }
};

/// Loads a lane's fragment of tile `tile` of the panel's lines, from `first_term` on. Slot offsets are XORed
/// with `by`.
template <typename T, Side side>
RT_DEVICE Fragment<T, side> load_panel(const std::byte* panel, int tile, int first_term, uint32_t by = 0,
                                       int lane = rt::lane()) {
  const std::byte* lines = panel + static_cast<uint32_t>(tile) * Swizzle::kTileBytes;
  const uint32_t moved = Swizzle::of_tile(tile) ^ by;
  const auto slot_of = [&](int line, int term) {
    const uint32_t slot = static_cast<uint32_t>(first_term + term) / kWide<T> * Swizzle::kSlotBytes;
    return lines + (Swizzle::of_line(line) ^ moved ^ slot);
  };
  if constexpr (kLoadsSlots<T>) {
    Fragment<T, side> made;
    load_slots<false>(made.words, slot_of(lane % kTile, lane / kTile * kWide<T>));
    return made;
  } else {
    return load_side<T, side>(
        [&](int line, int term) { return reinterpret_cast<const T*>(slot_of(line, term)) + term % kWide<T>; },
        lane);
  }
}

/// Reads a warp's tiles from panels. `first_tile` and tile numbers counted from it must not share any of
/// their lowest two bits: tile and term of a load are then constants that change the offset by an exclusive
/// or.
template <typename T, Side side>
struct PanelReader {
  uint32_t offset;  ///< offset in bytes of the lane's first slot

  RT_DEVICE explicit PanelReader(int first_tile, int lane = rt::lane()) {
    int line = lane % kTile, term = lane / kTile * kWide<T>;
    if constexpr (!kLoadsSlots<T>) {
      line = Layout<kPathOf<T>>::line(side, 0, lane);
      term = Layout<kPathOf<T>>::template term<kWide<T>>(0, lane);
    }
    offset = Swizzle::at(first_tile * kTile + line, term * static_cast<int>(sizeof(T)));
  }
  /// Keeps the offset in a register from here on.
  RT_DEVICE void keep() { offset = static_cast<uint32_t>(opaque_value(static_cast<int>(offset))); }
  /// Loads a fragment; `tile` counts from the first one. Slot offsets are XORed with `by`.
  RT_DEVICE Fragment<T, side> load(const std::byte* panel, int tile, int first_term, uint32_t by = 0) const {
    using Made = Fragment<T, side>;
    const std::byte* lines = panel + static_cast<uint32_t>(tile) * Swizzle::kTileBytes;
    const uint32_t moved = Swizzle::of_tile(tile) ^ by;
    const auto slot_of = [&](int term) {
      const uint32_t slot = static_cast<uint32_t>(term) / kWide<T> * Swizzle::kSlotBytes;
      return lines + (offset ^ moved ^ slot);
    };
    Made made;
    if constexpr (kLoadsSlots<T>) {
      load_slots<false>(made.words, slot_of(first_term));
    } else {
      RT_UNROLL
      for (int r = 0; r < Made::kRuns; ++r) {
        const Word16 run = *reinterpret_cast<const Word16*>(slot_of(first_term + r * kWide<T>));
        __builtin_memcpy(&made.words[r * Made::kWords / Made::kRuns], &run, sizeof run);
      }
    }
    return made;
  }
};

/// Assigns moves of transposed operands (lines adjacent in memory) to threads: move `number` covers kWide of
/// `lines` lines, from `line` on, in the terms of one word, from `term` on. The 32 moves of a warp touch 128
/// bytes, or all lines of four such words.
template <typename T, int lines>
struct AcrossMove {
  static constexpr int kTerms = static_cast<int>(4 / sizeof(T)), kGroups = lines / kWide<T>;
  static constexpr int kNear = kGroups % 8 == 0 ? 8 : kGroups % 4 == 0 ? 4 : 2;
  int line, term;

  RT_DEVICE explicit AcrossMove(int number) {
    const int rest = number / (4 * kNear);
    line = (number % kNear + rest % (kGroups / kNear) * kNear) * kWide<T>;
    term = rest / (kGroups / kNear) * kWide<T> + number / kNear % 4 * kTerms;
  }
};

/// Returns word e of a slot for line e, from words of one term (and of the next term, if elements have two
/// bytes) that hold kWide adjacent lines: the transpose of a small block.
template <typename T>
RT_DEVICE uint32_t word_across(const Word16& first, const Word16& second, int e) {
  const auto a = bits_as<Vec<uint32_t, 4>>(first), b = bits_as<Vec<uint32_t, 4>>(second);
  if constexpr (sizeof(T) == 4) {
    return a.at[e];
  } else {
    const uint32_t low = a.at[e / 2], high = b.at[e / 2];
    return bytes_of(low, high, e % 2 == 0 ? kLowHalves : kHighHalves);
  }
}

/// Writes the words of such a move to panels, with terms adjacent; the first line is at byte `place`.
template <typename T>
RT_DEVICE void put_across(std::byte* panels, uint32_t offset, const Word16& first, const Word16& second) {
  RT_UNROLL
  for (int e = 0; e < kWide<T>; ++e)
    *reinterpret_cast<Word4*>(panels + (offset ^ Swizzle::of_next(e))) = word_across<T>(first, second, e);
}

/// Lines of `terms` elements, in consecutive panels. In every second panel slots are swapped by half a row,
/// so that eight adjacent slots of one line do not hit a bank twice either.
template <typename T, int lines, int terms>
struct Panels {
  static constexpr int kPanelBytes = lines * static_cast<int>(Swizzle::kLineBytes);
  static_assert(terms % kPanelTerms<T> == 0 && lines % kTile == 0);
  alignas(16) std::byte at[terms / kPanelTerms<T> * kPanelBytes];

  /// Returns the offset in bytes of an element.
  RT_DEVICE static uint32_t offset(int line, int term) {
    const int panel = term / kPanelTerms<T>;
    const uint32_t in_panel = Swizzle::at(line, term % kPanelTerms<T> * static_cast<int>(sizeof(T)));
    return static_cast<uint32_t>(panel * kPanelBytes) + (in_panel ^ of_panel(panel));
  }
  template <Side side>
  RT_DEVICE Fragment<T, side> load(int tile, int first_term, int lane) const {
    const int panel = first_term / kPanelTerms<T>;
    return load_panel<T, side>(at + panel * kPanelBytes, tile, first_term % kPanelTerms<T>, of_panel(panel),
                               lane);
  }
  /// Loads a fragment by a reader; `tile` counts from the reader's first one.
  template <Side side>
  RT_DEVICE Fragment<T, side> load(const PanelReader<T, side>& reader, int tile, int first_term) const {
    const int panel = first_term / kPanelTerms<T>;
    return reader.load(at + panel * kPanelBytes, tile, first_term % kPanelTerms<T>, of_panel(panel));
  }
  /// Loads a fragment of the transposed panels: tile `tile` of their terms becomes the lines, from line
  /// `first_line` on. Only if kLoadsSlots.
  template <Side side>
  RT_DEVICE Fragment<T, side> load_across(int tile, int first_line, int lane) const {
    const int line = first_line + lane / kTile * kWide<T> + lane % kWide<T>;
    const int term = tile * kTile + lane / kWide<T> % 2 * kWide<T>;
    Fragment<T, side> made;
    load_slots<true>(made.words, at + offset(line, term));
    return made;
  }

 private:
  RT_DEVICE static uint32_t of_panel(int panel) {
    return static_cast<uint32_t>(panel) % 2 * (Swizzle::kSlots * Swizzle::kSlotBytes);
  }
};

}  // namespace hearth::rt
