#pragma once

#include "backend/gpu/rt_panel.h"

/// Tiles of rows in attention kernels: copies to shared memory, and products.
namespace hearth::ops {

/// Rows of one head of one sample: element (r, c) at r * stride + c.
template <typename T>
struct HeadRows {
  const T* at;
  int64_t stride;
  int num_rows, num_columns;

  /// Returns the rows from `row` on.
  RT_DEVICE HeadRows from_row(int row) const {
    return {at + row * stride, stride, num_rows - row, num_columns};
  }
  /// Returns rt::kWide<T> adjacent elements of a row; zeros outside of the array. `row` must be below 128, so
  /// that the byte offset fits in 32 bits.
  RT_DEVICE rt::Word16 read(int row, int column) const {
    constexpr int kWide = rt::kWide<T>;
    // A 32-bit offset is added to `at`, which is uniform across the warp, to save registers and 64-bit
    // arithmetic.
    const uint32_t offset =
        static_cast<uint32_t>(row) * static_cast<uint32_t>(stride) + static_cast<uint32_t>(column);
    const T* from = reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(at) +
                                               offset * static_cast<uint32_t>(sizeof(T)));
    if (num_columns % kWide == 0) {
      rt::Word16 word = {};
      if (row < num_rows && column < num_columns) word = *reinterpret_cast<const rt::Word16*>(from);
      return word;
    }
    // Rare case of unaligned rows: shifts elements into `words` one by one, from last to first, to save
    // registers.
    rt::Vec<uint32_t, 4> words = {};
    RT_NO_UNROLL
    for (int e = kWide - 1; e >= 0; --e) {
      const T element = row < num_rows && column + e < num_columns ? from[e] : rt::from_float<T>(0.0F);
      push(words, element);
    }
    return rt::bits_as<rt::Word16>(words);
  }

 private:
  RT_DEVICE static void push(rt::Vec<uint32_t, 4>& words, T element) {
    constexpr int kBits = 8 * static_cast<int>(sizeof(T));
    RT_UNROLL
    for (int w = 3; w > 0; --w)
      words.at[w] =
          kBits == 32 ? words.at[w - 1] : words.at[w] << kBits % 32 | words.at[w - 1] >> (32 - kBits);
    if constexpr (kBits == 32) {
      words.at[0] = rt::bits_as<uint32_t>(element);
    } else {
      words.at[0] = words.at[0] << kBits | uint32_t{element.bits};
    }
  }
};

/// Thread and lane index, reloaded at the start of each tile so that the compiler does not keep values
/// derived from them in registers.
struct ThreadIndex {
  int thread = rt::opaque_value(static_cast<int>(threadIdx.x)), lane = rt::opaque_value(rt::lane());
};

/// Move (rt::AcrossMove) of a copy of a head's tile [rows, columns] to shared memory: the constructor
/// loads its elements into registers, put() stores them.
template <typename T, int rows, int columns>
struct TileCopy {
  using Move = rt::AcrossMove<T, columns>;
  static constexpr int kRows = Move::kTerms, kMoves = rows / kRows * Move::kGroups;

  rt::Word16 held[kRows];
  int row, column;

  RT_DEVICE TileCopy(const HeadRows<T>& from, int first_row, int first_column, int number) {
    const Move move(number);
    const HeadRows<T> near = from.from_row(first_row);
    column = move.line;
    row = move.term;
    RT_UNROLL
    for (int r = 0; r < kRows; ++r) held[r] = near.read(row + r, first_column + column);
  }
  RT_DEVICE void put(rt::Panels<T, rows, columns>& to) const {
    const uint32_t offset = to.offset(row, column);
    RT_UNROLL
    for (int r = 0; r < kRows; ++r)
      *reinterpret_cast<rt::Word16*>(to.at + (offset ^ rt::Swizzle::of_next(r))) = held[r];
  }
  /// Stores the transposed elements, to a tile with one line per column.
  RT_DEVICE void put_across(rt::Panels<T, columns, rows>& to) const {
    rt::put_across<T>(to.at, to.offset(column, row), held[0], held[kRows - 1]);
  }
};

/// Copy of tiles with at most one move per thread: offsets are computed once and used for all tiles of rows
/// with the same stride.
template <typename T, int rows, int columns>
struct TileMove {
  using Copy = TileCopy<T, rows, columns>;
  using Held = rt::Word16[Copy::kRows];
  static constexpr int kNone = 1 << 30;  ///< value of `row` in threads without a move

  int row;
  uint32_t from, to, across;  ///< byte offsets: in the source rows, in the tile, in the transposed tile

  RT_DEVICE TileMove(const HeadRows<T>& of, int thread) {
    const typename Copy::Move move(thread);
    row = thread < Copy::kMoves && move.line < of.num_columns ? move.term : kNone;
    from = static_cast<uint32_t>((move.term * of.stride + move.line) * static_cast<int>(sizeof(T)));
    to = rt::Panels<T, rows, columns>::offset(move.term, move.line);
    across = rt::Panels<T, columns, rows>::offset(move.line, move.term);
  }
  RT_DEVICE void read(Held& held, const HeadRows<T>& of, int first_row, int thread) const {
    const HeadRows<T> near = of.from_row(first_row);
    if (of.num_columns % rt::kWide<T> != 0) {
      const typename Copy::Move move(thread);
      RT_UNROLL
      for (int r = 0; r < Copy::kRows; ++r)
        held[r] = near.read(row == kNone ? row : move.term + r, move.line);
      return;
    }
    const uint32_t step = static_cast<uint32_t>(of.stride) * static_cast<uint32_t>(sizeof(T));
    RT_UNROLL
    for (int r = 0; r < Copy::kRows; ++r) {
      held[r] = rt::Word16{};
      const std::byte* at =
          reinterpret_cast<const std::byte*>(near.at) + (from + static_cast<uint32_t>(r) * step);
      if (row + r < near.num_rows) held[r] = *reinterpret_cast<const rt::Word16*>(at);
    }
  }
  RT_DEVICE void put(rt::Panels<T, rows, columns>& panels, const Held& held) const {
    RT_UNROLL
    for (int r = 0; r < Copy::kRows; ++r)
      *reinterpret_cast<rt::Word16*>(panels.at + (to ^ rt::Swizzle::of_next(r))) = held[r];
  }
  RT_DEVICE void put_across(rt::Panels<T, columns, rows>& panels, const Held& held) const {
    rt::put_across<T>(panels.at, across, held[0], held[Copy::kRows - 1]);
  }
};

/// Calls body(r, c) for each row and column of a grid of tiles, unrolled.
template <int rows, int columns, typename Body>
RT_DEVICE void for_each_tile(Body body) {
  RT_UNROLL
  for (int r = 0; r < rows; ++r) {
    RT_UNROLL
    for (int c = 0; c < columns; ++c) body(r, c);
  }
}
/// Calls body(TileCopy) for each of this thread's moves of a tile copy.
template <typename T, int rows, int columns, int threads, typename Body>
RT_DEVICE void copy_tile(const HeadRows<T>& from, int first_row, int first_column, int thread, Body body) {
  using Copy = TileCopy<T, rows, columns>;
  RT_UNROLL
  for (int first = 0; first < Copy::kMoves; first += threads) {
    const int move = first + thread;
    if (Copy::kMoves % threads != 0 && move >= Copy::kMoves) continue;
    body(Copy(from, first_row, first_column, move));
  }
}
/// Copies a tile of rows to shared memory. The loop is not unrolled, to save registers; used outside of the
/// main loop.
template <int threads, typename T, int rows, int columns>
RT_DEVICE void copy_rows(rt::Panels<T, rows, columns>& to, const HeadRows<T>& from, int first_row,
                         int first_column, int thread) {
  using Copy = TileCopy<T, rows, columns>;
  RT_NO_UNROLL
  for (int move = thread; move < Copy::kMoves; move += threads)
    Copy(from, first_row, first_column, move).put(to);
}

/// Adds to sums[t] the product of tile `fixed_tile` of the stationary lines and tile t of the streamed lines
/// (transposed), over all terms.
template <typename T, int fixed_lines, int taken_lines, int terms, int tiles>
RT_DEVICE void add_products(rt::StationaryAcc<T> (&sums)[tiles],
                            const rt::Panels<T, fixed_lines, terms>& stationary, int fixed_tile,
                            const rt::Panels<T, taken_lines, terms>& streamed, int lane) {
  static_assert(tiles * rt::kTile == taken_lines);
  constexpr int kPath = rt::kPathOf<T>;
  RT_UNROLL
  for (int c = 0; c < terms; c += rt::kTile) {
    const auto lines = stationary.template load<rt::kStationarySide<kPath>>(fixed_tile, c, lane);
    RT_UNROLL
    for (int t = 0; t < tiles; ++t)
      rt::multiply_add(sums[t], lines, streamed.template load<rt::kStreamedSide<kPath>>(t, c, lane));
    RT_UNROLL
    for (int t = 0; t < tiles; ++t) rt::keep_order(sums[t].at[0]);
  }
}
/// Adds to sums[c] the product of `factors` [stationary lines, streamed lines] and tile c of the columns of
/// the streamed lines. `across` holds one line per column.
template <typename T, int columns, int terms, int tiles, int streamed_tiles>
RT_DEVICE void add_streamed(rt::StationaryAcc<T> (&sums)[tiles],
                            const rt::StationaryAcc<T> (&factors)[streamed_tiles],
                            const rt::Panels<T, columns, terms>& across, int lane) {
  RT_UNROLL
  for (int t = 0; t < streamed_tiles; ++t) {
    const auto local = rt::stationary_of(factors[t]);
    RT_UNROLL
    for (int c = 0; c < tiles; ++c) {
      rt::multiply_add(sums[c], local,
                       across.template load<rt::kStreamedSide<rt::kPathOf<T>>>(c, t * rt::kTile, lane));
      rt::keep_order(sums[c].at[0]);
    }
  }
}

// For GPUs that load fragments by ldmatrix and copy to shared memory asynchronously (rt::kLoadsSlots).

template <typename T, int lines, int terms>
using StationaryReader = rt::SlotReader<rt::kStationarySide<rt::kPathOf<T>>, false, T, lines, terms>;
template <typename T, int lines, int terms>
using StreamedReader = rt::SlotReader<rt::kStreamedSide<rt::kPathOf<T>>, false, T, lines, terms>;
template <typename T, int lines, int terms>
using AcrossReader = rt::SlotReader<rt::kStreamedSide<rt::kPathOf<T>>, true, T, lines, terms>;

/// A thread's part of the copies of tiles of a head's rows to shared memory: one slot of each panel in every
/// kRowStep-th row.
template <typename T, int rows, int columns, int threads>
struct AsyncCopy {
  static constexpr int kRowStep = threads / rt::Swizzle::kSlots, kPanels = columns / rt::kPanelTerms<T>;
  static_assert(kRowStep % rt::kTile == 0 && rows % kRowStep == 0);

  HeadRows<T> from;
  int thread, row, column;
  uint32_t offset;  ///< byte offset of the thread's first slot

  RT_DEVICE AsyncCopy(const HeadRows<T>& of, int of_thread)
      : from(of),
        thread(of_thread),
        row(thread / rt::Swizzle::kSlots),
        column(thread % rt::Swizzle::kSlots * rt::kWide<T>),
        offset(rt::Panels<T, rows, columns>::offset(row, column)) {}
  /// Starts the copy of a tile of rows; zeros outside of the array. `to` may be read after
  /// rt::end_copy_group(), rt::wait_copies() and a barrier.
  RT_DEVICE void start(rt::Panels<T, rows, columns>& to, int first_row) const {
    if (from.num_columns % rt::kWide<T> != 0) {
      copy_rows<threads>(to, from, first_row, 0, thread);
    } else {
      // 32-bit factors make the product one instruction.
      const auto stride = static_cast<uint32_t>(from.stride);
      const T* at = from.at + uint64_t{static_cast<uint32_t>(first_row + row)} * stride + column;
      for_each_tile<rows / kRowStep, kPanels>([&](int r, int p) {
        const auto more = static_cast<uint32_t>(r * kRowStep);
        const int term = p * rt::kPanelTerms<T>;
        const bool exists =
            first_row + row + r * kRowStep < from.num_rows && column + term < from.num_columns;
        rt::copy_beside<rt::Swizzle::kSlotBytes>(to.at + to.moved(offset, r * kRowStep / rt::kTile, term),
                                                 at + uint64_t{more} * stride + term, exists);
      });
    }
  }
};

/// Adds to sums[r][t] the product of tile r of the stationary lines and tile t of the streamed lines
/// (transposed), over all terms. stationary(r, c) returns the fragment of tile r and the c-th tile of terms.
template <typename T, int row_tiles, int tiles, int lines, int terms, typename Stationary>
RT_DEVICE void add_products(rt::StationaryAcc<T> (&sums)[row_tiles][tiles], const Stationary& stationary,
                            const rt::Panels<T, lines, terms>& streamed, int lane) {
  const StreamedReader<T, lines, terms> reader(streamed, 0, lane);
  RT_UNROLL
  for (int c = 0; c < terms / rt::kTile; ++c) {
    rt::StationaryFragment<T> rows[row_tiles];
    RT_UNROLL
    for (int r = 0; r < row_tiles; ++r) rows[r] = stationary(r, c);
    RT_UNROLL
    for (int t = 0; t < tiles; ++t) {
      const auto other = reader.load(t, c * rt::kTile);
      RT_UNROLL
      for (int r = 0; r < row_tiles; ++r) rt::multiply_add(sums[r][t], rows[r], other);
    }
  }
}
/// Adds to sums[r][c] the product of tile r of `factors` [stationary lines, streamed lines] and tile c of the
/// columns of the streamed lines.
template <typename T, int row_tiles, int tiles, int streamed_tiles, int lines, int terms>
RT_DEVICE void add_streamed(rt::StationaryAcc<T> (&sums)[row_tiles][tiles],
                            const rt::StationaryAcc<T> (&factors)[row_tiles][streamed_tiles],
                            const rt::Panels<T, lines, terms>& streamed, int lane) {
  const AcrossReader<T, lines, terms> reader(streamed, 0, lane);
  RT_UNROLL
  for (int t = 0; t < streamed_tiles; ++t) {
    rt::StationaryFragment<T> rows[row_tiles];
    RT_UNROLL
    for (int r = 0; r < row_tiles; ++r) rows[r] = rt::stationary_of(factors[r][t]);
    RT_UNROLL
    for (int c = 0; c < tiles; ++c) {
      const auto other = reader.load(t, c * rt::kTile);
      RT_UNROLL
      for (int r = 0; r < row_tiles; ++r) rt::multiply_add(sums[r][c], rows[r], other);
    }
  }
}

}  // namespace hearth::ops
