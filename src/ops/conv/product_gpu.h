#pragma once

#include <type_traits>
#include <utility>

#include "ops/matmul/product_blocks.h"

/// Implicit GEMM: matrix products of operands ("sides") whose elements are gathered from memory while tiles
/// are loaded, with plain f32 arithmetic or, for 16-bit elements, with matrix instructions. A side has lines
/// (rows of the left or columns of the right operand) and terms (the reduction axis).
namespace hearth::ops {

/// Block size of the plain f32 arithmetic.
struct PlainBlocking {
  static constexpr int kRows = kPlainTile, kColumns = kPlainTile;
};

/// Difference between two pixel positions: in rows, in columns, and in bytes modulo 2^32.
struct TapOffset {
  static constexpr int kOutside = -(1 << 30);  ///< y coordinate that is outside of every image
  int y = 0, x = 0;
  uint32_t bytes = 0;

  RT_DEVICE TapOffset operator+(const TapOffset& more) const {
    return {y + more.y, x + more.x, bytes + more.bytes};
  }
};

/// Transposed view of a side: lines and terms are exchanged.
template <typename Side>
struct Transposed {
  using Line = typename Side::Term;
  using Term = typename Side::Line;
  static constexpr bool kLinesAreNeighbors = !Side::kLinesAreNeighbors;
  Side side;

  RT_DEVICE Line line(int64_t i) const { return side.term(i); }
  RT_DEVICE Term term(int64_t i) const { return side.line(i); }
  RT_DEVICE float at(const Line& line, const Term& term) const { return side.at(term, line); }
  RT_DEVICE auto where(const Line& line, const Term& term) const { return side.where(term, line); }
  RT_DEVICE auto walk_of_line(int i) const { return side.walk_of_term(i); }
  RT_DEVICE auto walk_of_term(int i) const { return side.walk_of_line(i); }
  template <typename Walk>
  RT_DEVICE void advance(Walk& walk) const {
    side.advance(walk);
  }
  RT_DEVICE auto origin() const { return side.origin(); }
  RT_DEVICE bool has(const TapOffset& tap_offset) const { return side.has(tap_offset); }
};

/// Adapts a side of TileLoader (plain_product.h) to the interface of Operand (product_blocks.h). The side
/// must also have
///   const T* where(Line, Term)   address of the element; null if the element is 0
template <typename T, typename Side>
struct Gathered {
  static constexpr bool kAlongTerms = !Side::kLinesAreNeighbors;
  Side side;
  int lines;

  RT_DEVICE bool along_terms() const { return kAlongTerms; }
  RT_DEVICE rt::Word16 wide(int line, int term, int lines_left, int terms_left) const {
    if (lines_left <= 0 || terms_left <= 0) return wide_of(0, [](int) { return 0U; });
    const auto own_line = side.line(line);
    const auto own_term = side.term(term);
    return wide_of(kAlongTerms ? terms_left : lines_left, [&](int e) {
      const T* at =
          kAlongTerms ? side.where(own_line, side.term(term + e)) : side.where(side.line(line + e), own_term);
      return at == nullptr ? 0U : uint32_t{at->bits};
    });
  }
};

/// Adapts a side that allows 16-byte loads: each kWide adjacent elements, from a multiple of kWide on, are
/// either aligned and inside of the image, or all outside. The position of an element is the sum of its
/// line's and its term's TapOffset. The side must have
///   Walk walk_of_line(int), walk_of_term(int)   Walk::tap_offset is the offset of the line or term
///   void advance(Walk&)                         moves to the term kDepth later
///   const T* origin()                           address that byte offsets are relative to
///   bool has(TapOffset)                         false if the element is outside of the image
/// and, if its lines are adjacent in memory, Walk::move(TapOffset), which adds to the offset. `uniform`: each
/// kDepth adjacent terms are channels of one tap.
template <typename T, typename Side, bool uniform>
struct EvenGathered {
  static constexpr bool kAlongTerms = !Side::kLinesAreNeighbors;
  Side side;
  int lines;

  RT_DEVICE bool along_terms() const { return kAlongTerms; }
};
/// Keeps the offsets of a thread's lines and steps from term to term; offsets of uniform terms are equal in
/// all lanes of a warp. Lines past the end of the matrix are clamped to an offset outside of the image; their
/// sums are not used.
template <typename T, int kLines, typename Side, bool uniform>
struct PanelLoader<T, kLines, EvenGathered<T, Side, uniform>> {
  static constexpr bool kAlongTerms = EvenGathered<T, Side, uniform>::kAlongTerms;
  static constexpr int kOwnLines = kAlongTerms ? 2 : 1, kOwnTerms = kAlongTerms ? 1 : 2;
  static_assert(kAlongTerms || !uniform);
  using Walk = decltype(std::declval<Side>().walk_of_term(0));
  const Side& side;
  TapOffset lines[kOwnLines];
  Walk terms[kOwnTerms];  ///< include the line's offset if the thread has a single line

  RT_DEVICE PanelLoader(const Panel<T, kLines>& panel, const EvenGathered<T, Side, uniform>& from,
                        int first_line, int first_term)
      : side(from.side) {
    const int last = from.lines - (kAlongTerms ? 1 : kWide);
    for (int i = 0; i < kOwnLines; ++i) {
      const int line = first_line + panel.line_of(i);
      lines[i] = side.walk_of_line(line < last ? line : last).tap_offset;
      if (line > last) lines[i].y = TapOffset::kOutside;
      if constexpr (uniform) lines[i].bytes += static_cast<uint32_t>(panel.term_of(i) * sizeof(T));
    }
    for (int i = 0; i < kOwnTerms; ++i) {
      terms[i] = side.walk_of_term(first_term + own_term(panel, i));
      if constexpr (!kAlongTerms) terms[i].move(lines[0]);
    }
  }
  RT_DEVICE void fetch(Panel<T, kLines>& panel, int first_term, int end_term) {
    const auto* origin = reinterpret_cast<const std::byte*>(side.origin());
    RT_UNROLL
    for (int i = 0; i < panel.kLaneElements; ++i) {
      TapOffset tap_offset = terms[i % kOwnTerms].tap_offset;
      if (kAlongTerms) tap_offset = tap_offset + lines[i];
      panel.held[i] = {};
      if (panel.has_move(i) && own_term(panel, i) < end_term - first_term && side.has(tap_offset))
        panel.held[i] = *reinterpret_cast<const rt::Word16*>(origin + tap_offset.bytes);
    }
    for (int i = 0; i < kOwnTerms; ++i) side.advance(terms[i]);
  }

 private:
  RT_DEVICE static int own_term(const Panel<T, kLines>& panel, int i) {
    return uniform ? 0 : panel.term_of(i);
  }
};

/// An aligned operand in memory whose contiguous axis is known at compile time.
template <typename T, bool lines_are_neighbors>
struct EvenStrided : AlignedOperand<T> {
  RT_DEVICE bool along_terms() const { return !lines_are_neighbors; }
};
template <typename T, int kLines, bool lines_are_neighbors>
struct PanelLoader<T, kLines, EvenStrided<T, lines_are_neighbors>>
    : PanelLoader<T, kLines, AlignedOperand<T>> {
  using PanelLoader<T, kLines, AlignedOperand<T>>::PanelLoader;
};

/// Returns `side` as an operand of for_each_tile_sum() for the block size B.
template <typename T, typename B, typename Side>
RT_DEVICE auto tile_side(const Side& side, int lines) {
  using Even = EvenGathered<T, Side, B::kUniform && !Side::kLinesAreNeighbors>;
  return std::conditional_t<B::kAligned, Even, Gathered<T, Side>>{side, lines};
}
template <typename T, typename B, bool lines_are_neighbors>
RT_DEVICE auto tile_side(const Strided<T, lines_are_neighbors>& side, int lines) {
  const Operand<T> operand{side.data, side.of_line, side.of_term, lines};
  if constexpr (B::kAligned) {
    return EvenStrided<T, lines_are_neighbors>{{operand}};
  } else {
    return operand;
  }
}

/// Returns the part of an m x n product that this block computes, over all terms; blockIdx.x is the block of
/// rows, blockIdx.y the block of columns.
template <typename B>
RT_DEVICE ProductPart block_part(int64_t m, int64_t n, int64_t num_terms) {
  return {.m = m,
          .n = n,
          .row = static_cast<int64_t>(blockIdx.x) * B::kRows,
          .column = static_cast<int64_t>(blockIdx.y) * B::kColumns,
          .begin = 0,
          .end = num_terms};
}

/// Computes indices of a thread's outputs in a matrix with rows of `width` elements. Byte offsets from the
/// block's first output must fit in 32 bits.
struct ThreadOutputs {
  int row, column;  ///< row and column of the thread's first output
  int first, width;

  RT_DEVICE ThreadOutputs(const ProductPart& part, int thread_output_row, int thread_output_column,
                          int64_t row_width)
      : row(thread_output_row), column(thread_output_column), width(static_cast<int>(row_width)) {
    const int down = row - static_cast<int>(part.row), across = column - static_cast<int>(part.column);
    first = rt::opaque_value(down * width + across);
  }
  /// Returns the element index of an output relative to the block's first output.
  RT_DEVICE uint32_t index(int at_row, int at_column) const {
    // Computed separately from the per-thread `first`: uniform across the warp, so that the multiply is
    // scalar.
    const int of_warp = rt::uniform_value((at_row - row) * width + at_column - column);
    return static_cast<uint32_t>(first + of_warp);
  }
};
/// Returns element `index` of base, with 32-bit address arithmetic.
template <typename T>
RT_DEVICE T& element(T* base, uint32_t index) {
  return *reinterpret_cast<T*>(reinterpret_cast<std::byte*>(base) + index * static_cast<uint32_t>(sizeof(T)));
}

/// Computes `part` of the product left * right, then calls body(row, column, sum) for each output of this
/// thread. body_of(row, column) is called once, for the thread's first output, and returns `body`. All
/// threads of the block must call this function, and only once per kernel.
template <typename T, typename B, typename Left, typename Right, typename BodyOf>
RT_DEVICE void for_each_product(const Left& left, const Right& right, const ProductPart& part,
                                BodyOf body_of) {
  if constexpr (std::is_same_v<B, PlainBlocking>) {
    const ThreadSums sums = add_products(left, right, part);
    for_each_sum(
        sums, part,
        body_of(static_cast<int>(part.row) + thread_row(), static_cast<int>(part.column) + thread_column()));
  } else {
    const int m = static_cast<int>(part.m), n = static_cast<int>(part.n);
    for_each_tile_sum<T, B>(
        tile_side<T, B>(left, m), tile_side<T, B>(right, n), static_cast<int>(part.row),
        static_cast<int>(part.column), {static_cast<int>(part.begin), static_cast<int>(part.end)},
        [&](int thread_output_row, int thread_output_column) {
          return
              [=, body = body_of(thread_output_row, thread_output_column)](int row, int column, float sum) {
                if (row < m && column < n) body(row, column, sum);
              };
        });
  }
}

/// Alignment class of a number of channels. even: a multiple of kWide, which allows 16-byte loads. uniform: a
/// multiple of kDepth, so that each kDepth adjacent terms also belong to one tap.
enum class Channels : uint8_t { any, even, uniform };
inline Channels channels_of(int64_t channels) {
  if (channels % kWide != 0) return Channels::any;
  return channels % kDepth == 0 ? Channels::uniform : Channels::even;
}
/// Block size B for sides that allow 16-byte loads.
template <typename B>
struct OfEvenSides : B {
  static constexpr bool kAligned = true;
};
/// Block size B for sides in which also each kDepth adjacent terms belong to one tap.
template <typename B>
struct OfUniformTaps : OfEvenSides<B> {
  static constexpr bool kUniform = true;
};

/// Returns body(B()), where B is the block size chosen for an m x n product of elements of T.
template <typename T, typename Body>
auto with_blocking(int64_t m, int64_t n, Channels channels, Body body) {
  if constexpr (std::is_same_v<T, float>) {
    return body(PlainBlocking());
  } else {
    const MatmulShape shape{.m = static_cast<int>(m), .n = static_cast<int>(n)};
    const MatmulVariant way = MatmulKernel::default_variant(shape, DType::bf16);
    if (channels == Channels::any) return way == MatmulVariant::tall ? body(Tall()) : body(Small());
    if (way == MatmulVariant::tall) return body(OfEvenSides<Tall>());
    if (channels == Channels::even)
      return way == MatmulVariant::large ? body(OfEvenSides<Large>()) : body(OfEvenSides<Small>());
    // With fewer large blocks, the last wave of blocks would leave most of the GPU idle.
    if (n > Narrow::kColumns && num_blocks(shape, MatmulVariant::large) >= 2 * kMinBusyBlocks)
      return body(OfUniformTaps<Large>());
    if (way == MatmulVariant::large) return body(OfUniformTaps<Narrow>());
    return body(OfUniformTaps<Small>());
  }
}
/// Returns body(B()) for an m x n product with split-K. Block sizes are chosen without regard to the number
/// of blocks, because splits of the terms supply enough of them.
template <typename T, typename Body>
auto with_blocking_in_parts(int64_t m, int64_t n, bool even, Body body) {
  if constexpr (std::is_same_v<T, float>) {
    return body(PlainBlocking());
  } else {
    const bool tall = n <= Tall::kColumns;
    if (!even) return tall ? body(Tall()) : body(Small());
    if (tall) return body(OfEvenSides<Tall>());
    if (m < Large::kRows) return body(OfEvenSides<Small>());
    return n > Narrow::kColumns ? body(OfEvenSides<Large>()) : body(OfEvenSides<Narrow>());
  }
}

/// Returns the launch shape of an m x n product whose terms are split into `parts` (blockIdx.z).
template <typename B>
rt::Shape product_blocks(int64_t m, int64_t n, int64_t parts) {
  return {rt::Dim3{static_cast<unsigned>(ceil_div(m, B::kRows)),
                   static_cast<unsigned>(ceil_div(n, B::kColumns)), static_cast<unsigned>(parts)},
          rt::Dim3{kBlockThreads, 1, 1}};
}

}  // namespace hearth::ops
