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
  RT_DEVICE bool in_runs() const { return side.in_runs(); }
};

/// A side for tiles (Operand in product_blocks.h) of one that TileLoader can ask, which also has
///   const T* where(Line, Term)  the element; null: it is 0
///   bool in_runs()              whether kWide neighbors, counted from a multiple of kWide, have or lack an
///                               address together, which is then aligned to all of them
template <typename T, typename Side>
struct Gathered {
  static constexpr bool kAlongTerms = !Side::kLinesAreNeighbors;
  Side side;
  int lines;

  RT_DEVICE bool along_terms() const { return kAlongTerms; }
  RT_DEVICE rt::Word16 wide(int line, int term, int lines_left, int terms_left) const {
    const auto nothing = [] { return wide_of(0, [](int) { return 0U; }); };
    if (lines_left <= 0 || terms_left <= 0) return nothing();
    const auto own_line = side.line(line);
    const auto own_term = side.term(term);
    if (side.in_runs()) {
      const T* at = side.where(own_line, own_term);
      return at == nullptr ? nothing() : *reinterpret_cast<const rt::Word16*>(at);
    }
    return wide_of(kAlongTerms ? terms_left : lines_left, [&](int e) {
      const T* at =
          kAlongTerms ? side.where(own_line, side.term(term + e)) : side.where(side.line(line + e), own_term);
      return at == nullptr ? 0U : uint32_t{at->bits};
    });
  }
};
template <typename T, typename Side>
RT_DEVICE Gathered<T, Side> tile_side(const Side& side, int lines) {
  return {side, lines};
}
template <typename T, bool lines_are_neighbors>
RT_DEVICE Operand<T> tile_side(const Strided<T, lines_are_neighbors>& side, int lines) {
  return {side.data, side.of_line, side.of_term, lines};
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
    for_each_tile_sum<T, B>(tile_side<T>(left, m), tile_side<T>(right, n), static_cast<int>(part.row),
                            static_cast<int>(part.column),
                            {static_cast<int>(part.begin), static_cast<int>(part.end)},
                            [&](int row, int column, float sum) {
                              if (row < m && column < n) body(row, column, sum);
                            });
  }
}

/// What body(B()) returns, B being how blocks share an m x n product of elements of T, no larger than
/// Largest.
template <typename T, typename Largest = Large, typename Body>
auto with_blocking(int64_t m, int64_t n, Body body) {
  if constexpr (std::is_same_v<T, float>) {
    return body(PlainBlocking());
  } else {
    const MatmulShape shape{.m = static_cast<int>(m), .n = static_cast<int>(n)};
    const MatmulWay way = MatmulKernel::usual_way(shape, DType::bf16);
    if (way == MatmulWay::large) return body(Largest());
    if (way == MatmulWay::tall) return body(Tall());
    return body(Small());
  }
}

template <typename B>
rt::Shape product_blocks(int64_t m, int64_t n, int64_t parts) {
  return {rt::Dim3{static_cast<unsigned>(divided_up(m, B::kRows)),
                   static_cast<unsigned>(divided_up(n, B::kColumns)), static_cast<unsigned>(parts)},
          rt::Dim3{kBlockThreads, 1, 1}};
}

}  // namespace hearth::ops
