#pragma once

#include <type_traits>

#include "ops/matmul/product_blocks.h"

/// Products of sides that are read from where their elements lie, by plain arithmetic in f32 or, of 16-bit
/// elements, by matrix tiles.
namespace hearth::ops {

struct PlainBlocking {
  static constexpr int kRows = kPlainTile, kColumns = kPlainTile;
};

/// A side whose lines are another's terms.
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
  RT_DEVICE void advance(Term& term, int by) const { side.advance(term, by); }
};

/// A side for tiles (Operand in product_blocks.h) of one that TileLoader can ask, which also has
///   const T* where(Line, Term)   the element; null: it is 0
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
/// The same where kWide neighbors, counted from a multiple of kWide, have or lack an address together, which
/// is then aligned to all of them. The side also has
///   void advance(Term&, int)     to a later term
template <typename T, typename Side>
struct EvenGathered {
  static constexpr bool kAlongTerms = !Side::kLinesAreNeighbors;
  Side side;
  int lines;

  RT_DEVICE bool along_terms() const { return kAlongTerms; }
};
/// A thread keeps what is worth knowing of its lines and terms, and advances the terms. Lines that do not
/// exist are the last ones again, for nobody asks for their sums.
template <typename T, int kLines, typename Side>
struct Feed<T, kLines, EvenGathered<T, Side>> {
  static constexpr bool kAlongTerms = EvenGathered<T, Side>::kAlongTerms;
  static constexpr int kOwnLines = kAlongTerms ? 2 : 1, kOwnTerms = kAlongTerms ? 1 : 2;
  const Side& side;
  typename Side::Line lines[kOwnLines];
  typename Side::Term terms[kOwnTerms];

  RT_DEVICE Feed(const Panel<T, kLines>& panel, const EvenGathered<T, Side>& from, int first_line,
                 int first_term)
      : side(from.side) {
    const int last = from.lines - (kAlongTerms ? 1 : kWide);
    for (int i = 0; i < kOwnLines; ++i) {
      const int line = first_line + panel.line_of(i);
      lines[i] = side.line(line < last ? line : last);
    }
    for (int i = 0; i < kOwnTerms; ++i) terms[i] = side.term(first_term + panel.term_of(i));
  }
  RT_DEVICE void fetch(Panel<T, kLines>& panel, int first_term, int end_term) {
    RT_UNROLL
    for (int i = 0; i < panel.kOwn; ++i) {
      const T* at = side.where(lines[i % kOwnLines], terms[i % kOwnTerms]);
      panel.held[i] = {};
      if (panel.has_move(i) && first_term + panel.term_of(i) < end_term && at != nullptr)
        panel.held[i] = *reinterpret_cast<const rt::Word16*>(at);
    }
    for (int i = 0; i < kOwnTerms; ++i) side.advance(terms[i], kDepth);
  }
};

template <typename T, bool even, typename Side>
RT_DEVICE auto tile_side(const Side& side, int lines) {
  using Made = std::conditional_t<even, EvenGathered<T, Side>, Gathered<T, Side>>;
  return Made{side, lines};
}
template <typename T, bool even, bool lines_are_neighbors>
RT_DEVICE auto tile_side(const Strided<T, lines_are_neighbors>& side, int lines) {
  using Made = std::conditional_t<even, EvenOperand<T>, Operand<T>>;
  return Made{Operand<T>{side.data, side.of_line, side.of_term, lines}};
}

/// The block's part of an m x n product, blockIdx.x counting rows and blockIdx.y columns: all terms of it.
template <typename B>
RT_DEVICE ProductPart own_part(int64_t m, int64_t n, int64_t num_terms) {
  return {.m = m,
          .n = n,
          .row = static_cast<int64_t>(blockIdx.x) * B::kRows,
          .column = static_cast<int64_t>(blockIdx.y) * B::kColumns,
          .begin = 0,
          .end = num_terms};
}

/// Calls body(row, column, sum) for the outputs of the thread. All threads of the block must call it, once in
/// a kernel.
template <typename T, typename B, typename Left, typename Right, typename Body>
RT_DEVICE void for_each_product(const Left& left, const Right& right, const ProductPart& part, Body body) {
  if constexpr (std::is_same_v<B, PlainBlocking>) {
    for_each_sum(add_products(left, right, part), part, body);
  } else {
    const int m = static_cast<int>(part.m), n = static_cast<int>(part.n);
    for_each_tile_sum<T, B>(tile_side<T, B::kEven>(left, m), tile_side<T, B::kEven>(right, n),
                            static_cast<int>(part.row), static_cast<int>(part.column),
                            {static_cast<int>(part.begin), static_cast<int>(part.end)},
                            [&](int row, int column, float sum) {
                              if (row < m && column < n) body(row, column, sum);
                            });
  }
}

/// Blocks of sides that are both even.
template <typename B>
struct OfEvenSides : B {
  static constexpr bool kEven = true;
};
/// Whether channels that lie side by side are read by wide moves.
inline bool are_even(int64_t channels) { return channels % kWide == 0; }

/// What body(B()) returns, B being how blocks share an m x n product of elements of T. `in_parts`: its terms
/// are dealt out to as many blocks as it takes.
template <typename T, typename Body>
auto with_blocking(int64_t m, int64_t n, bool even, bool in_parts, Body body) {
  if constexpr (std::is_same_v<T, float>) {
    return body(PlainBlocking());
  } else {
    const MatmulShape shape{.m = static_cast<int>(m), .n = static_cast<int>(n)};
    const MatmulWay way = MatmulKernel::usual_way(shape, DType::bf16);
    if (!even) return way == MatmulWay::tall ? body(Tall()) : body(Small());
    if (way == MatmulWay::large || (in_parts && fills_large(m, n))) return body(OfEvenSides<Large>());
    if (way == MatmulWay::tall) return body(OfEvenSides<Tall>());
    return body(OfEvenSides<Small>());
  }
}

template <typename B>
rt::Shape product_blocks(int64_t m, int64_t n, int64_t parts) {
  return {rt::Dim3{static_cast<unsigned>(divided_up(m, B::kRows)),
                   static_cast<unsigned>(divided_up(n, B::kColumns)), static_cast<unsigned>(parts)},
          rt::Dim3{kBlockThreads, 1, 1}};
}

}  // namespace hearth::ops
