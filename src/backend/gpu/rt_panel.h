#pragma once

#include "backend/gpu/rt_tile.h"

/// Operand panels in shared memory, swizzled against bank conflicts. A line is a row of the left operand or a
/// column of the right one. A panel holds 64 bytes of each of its lines. Two lines share a 128-byte row of
/// shared memory, which spans all banks once: eight slots of 16 bytes. Slots are permuted by an exclusive or
/// with a mask that depends on the row, so that these accesses of a warp use every bank once: reading the
/// same slot of eight lines, writing all slots of two lines, and writing one word of every eighth line.
namespace hearth::rt {

/// kWide: number of elements in a slot of 16 bytes. kPanelTerms: number of terms (elements along k) of a
/// panel's line, which has 64 bytes.
template <typename T>
inline constexpr int kWide = static_cast<int>(16 / sizeof(T));
template <typename T>
inline constexpr int kPanelTerms = static_cast<int>(64 / sizeof(T));

/// True if fragments are loaded from panels by ldmatrix and panels are filled by asynchronous copies.
template <typename T>
inline constexpr bool kLoadsSlots = kPathOf<T> == 90;

/// Maps bytes of a line to offsets in a panel. The masks are combined with offsets by exclusive or.
struct Swizzle {
  static constexpr uint32_t kSlotBytes = 16, kLineBytes = 64, kRowBytes = 2 * kLineBytes;
  static constexpr uint32_t kTileBytes = kTile * kLineBytes;
  static constexpr int kSlots = kLineBytes / kSlotBytes;

  /// Returns the byte offset of a line's first slot within its tile. Slot s is at offset of_line(line) ^ (s *
  /// kSlotBytes).
  RT_DEVICE static uint32_t of_line(int line) {
    const uint32_t row = static_cast<uint32_t>(line) % kTile / 2;
    return row * kRowBytes + (static_cast<uint32_t>(line) % 2 * kSlots ^ row ^ row / 4) * kSlotBytes;
  }
  /// Returns the mask that is applied to all slot offsets of a tile.
  RT_DEVICE static uint32_t of_tile(int tile) { return static_cast<uint32_t>(tile) % 4 * 2 * kSlotBytes; }
  /// Returns the mask that turns the offset of a line into the offset of the line that is `line` lines
  /// further. Valid if the index of the first line is a multiple of the number of elements per slot, and
  /// `line` is smaller than that number.
  RT_DEVICE static constexpr uint32_t of_next(int line) {
    const auto row = static_cast<uint32_t>(line / 2);
    return row * kRowBytes + (static_cast<uint32_t>(line % 2 * kSlots) ^ row) * kSlotBytes;
  }
  /// Returns the offset of a byte of a line. The mask repeats every four tiles, so the offset of the same
  /// byte four tiles further is larger by 4 * kTileBytes.
  RT_DEVICE static uint32_t at(int line, int byte) {
    const int tile = line / kTile;
    const auto offset = static_cast<uint32_t>(byte);
    return static_cast<uint32_t>(tile) * kTileBytes +
           (of_line(line) ^ of_tile(tile) ^ offset / kSlotBytes * kSlotBytes) + offset % kSlotBytes;
  }
};

/// First element, in a tile of 16-bit numbers, of the slot that a lane passes to load_slots<across>().
template <Side side, bool across>
struct SlotOfLane {
  int line, term;

  RT_DEVICE explicit SlotOfLane(int lane) {
    // Words 0 and 1 of a fragment differ in the line on the left side, and in the term on the right side.
    constexpr bool kLinesFirst = (side == Side::left) != across;
    line = (kLinesFirst ? lane / 8 % 2 : lane / 16) * 8 + lane % 8;
    term = (kLinesFirst ? lane / 16 : lane / 8 % 2) * 8;
  }
};

/// Loads a lane's fragment: the lines of tile `tile` of the panel, 16 terms from `first_term` on. Slot
/// offsets are XORed with `by`.
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
    const SlotOfLane<side, false> slot(lane);
    load_slots<false>(made.words, shared_address(slot_of(slot.line, slot.term)));
    return made;
  } else {
    return load_side<T, side>(
        [&](int line, int term) { return reinterpret_cast<const T*>(slot_of(line, term)) + term % kWide<T>; },
        lane);
  }
}

/// Reads a warp's tiles from panels. The bits of `first_tile` and of the tile numbers passed to load() must
/// be disjoint in their lowest two bits: then tile and term change the offset by an exclusive or with a
/// constant.
template <typename T, Side side>
struct PanelReader {
  uint32_t offset;  ///< byte offset of the lane's first slot

  RT_DEVICE explicit PanelReader(int first_tile, int lane = rt::lane()) {
    SlotOfLane<side, false> slot(lane);
    if constexpr (!kLoadsSlots<T>) {
      slot.line = Layout<kPathOf<T>>::line(side, 0, lane);
      slot.term = Layout<kPathOf<T>>::template term<kWide<T>>(side, 0, lane);
    }
    offset = Swizzle::at(first_tile * kTile + slot.line, slot.term * static_cast<int>(sizeof(T)));
  }
  /// Keeps the compiler from recomputing the offset after this call: it stays in a register.
  RT_DEVICE void keep() { offset = static_cast<uint32_t>(opaque_value(static_cast<int>(offset))); }
  /// Loads a fragment. `tile` is relative to first_tile. Slot offsets are XORed with `by`.
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
      load_slots<false>(made.words, shared_address(slot_of(first_term)));
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

/// Assigns the moves (16-byte loads) of a transposed operand, whose lines are adjacent in memory, to threads.
/// Move `number` covers kWide lines from `line` on, and the kTerms terms of one word from `term` on. The 32
/// moves of a warp together read 128 adjacent bytes, or all lines of four such words.
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

/// Transposes a small block. `first` and `second` hold kWide adjacent lines of one term and of the next.
/// Returns the 4 bytes of line e: its element of `first` or, for elements of two bytes, its elements of both.
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

/// Writes the words of an AcrossMove to panels, with the terms of a line adjacent. The first line is at byte
/// `offset`.
template <typename T>
RT_DEVICE void put_across(std::byte* panels, uint32_t offset, const Word16& first, const Word16& second) {
  RT_UNROLL
  for (int e = 0; e < kWide<T>; ++e)
    *reinterpret_cast<Word4*>(panels + (offset ^ Swizzle::of_next(e))) = word_across<T>(first, second, e);
}

/// A matrix of `lines` lines of `terms` elements, stored in consecutive panels. In every second panel the two
/// halves of each row are exchanged, so that eight adjacent slots of one line do not conflict in a bank
/// either.
template <typename T, int lines, int terms>
struct Panels {
  static constexpr int kPanelBytes = lines * static_cast<int>(Swizzle::kLineBytes);
  static_assert(terms % kPanelTerms<T> == 0 && lines % kTile == 0);
  alignas(kLoadsSlots<T> ? Swizzle::kRowBytes : 16) std::byte at[terms / kPanelTerms<T> * kPanelBytes];

  /// Returns the offset in bytes of an element.
  RT_DEVICE static uint32_t offset(int line, int term) {
    const int panel = term / kPanelTerms<T>;
    const uint32_t in_panel = Swizzle::at(line, term % kPanelTerms<T> * static_cast<int>(sizeof(T)));
    return static_cast<uint32_t>(panel * kPanelBytes) + (in_panel ^ of_panel(panel));
  }
  /// Returns the offset or address of the slot `tiles` tiles and `num_terms` terms after a slot of the first
  /// panel. `tiles` and the index of that slot's tile must be disjoint in their lowest two bits; `num_terms`
  /// must be a multiple of kTile.
  template <typename Address>
  RT_DEVICE static Address moved(Address slot, int tiles, int num_terms) {
    const int panel = num_terms / kPanelTerms<T>;
    const uint32_t in_line =
        static_cast<uint32_t>(num_terms % kPanelTerms<T>) / kWide<T> * Swizzle::kSlotBytes;
    return (slot ^ (Swizzle::of_tile(tiles) ^ of_panel(panel) ^ in_line)) +
           (static_cast<uint32_t>(tiles) * Swizzle::kTileBytes + static_cast<uint32_t>(panel * kPanelBytes));
  }
  template <Side side>
  RT_DEVICE Fragment<T, side> load(int tile, int first_term, int lane) const {
    const int panel = first_term / kPanelTerms<T>;
    return load_panel<T, side>(at + panel * kPanelBytes, tile, first_term % kPanelTerms<T>, of_panel(panel),
                               lane);
  }
  /// Loads a fragment through a reader. `tile` is relative to the reader's first_tile.
  template <Side side>
  RT_DEVICE Fragment<T, side> load(const PanelReader<T, side>& reader, int tile, int first_term) const {
    const int panel = first_term / kPanelTerms<T>;
    return reader.load(at + panel * kPanelBytes, tile, first_term % kPanelTerms<T>, of_panel(panel));
  }

 private:
  RT_DEVICE static uint32_t of_panel(int panel) {
    return static_cast<uint32_t>(panel) % 2 * (Swizzle::kSlots * Swizzle::kSlotBytes);
  }
};

/// Reads a warp's tiles from panels like PanelReader, by addresses that can stay in registers. With `across`
/// the matrix is transposed while it is loaded: `tile` of load() is then a tile of the fragment's terms, and
/// `first_term` is the fragment's first line. Only if kLoadsSlots.
template <Side side, bool across, typename T, int lines, int terms>
struct SlotReader {
  using Source = Panels<T, lines, terms>;
  SharedAddress first;  ///< address of the lane's first slot

  RT_DEVICE SlotReader(const Source& panels, int first_tile, int lane) {
    const SlotOfLane<side, across> slot(lane);
    first = shared_address(panels.at) + Source::offset(first_tile * kTile + slot.line, slot.term);
  }
  RT_DEVICE Fragment<T, side> load(int tile, int first_term) const {
    Fragment<T, side> made;
    load_slots<across>(made.words, Source::moved(first, tile, first_term));
    return made;
  }
};

}  // namespace hearth::rt
