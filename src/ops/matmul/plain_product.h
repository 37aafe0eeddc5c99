#pragma once

#include "ops/gpu_support.h"

/// Matmuls on GPUs in f32 arithmetic without matrix instructions. Operands may be computed or gathered while
/// they are loaded.
namespace hearth::ops {

/// A block of kBlockThreads threads computes kPlainTile x kPlainTile outputs; each thread computes
/// kPlainThreadTile x kPlainThreadTile of them.
inline constexpr int kPlainTile = 64;
inline constexpr int kPlainThreadTile = 4;
inline constexpr int kPlainSide = kPlainTile / kPlainThreadTile;
static_assert(kPlainSide * kPlainSide == kBlockThreads);
/// Number of terms (indices of the reduction axis) that a block holds in shared memory at a time.
inline constexpr int kPlainDepth = 16;

/// Sums of a thread's outputs; at[0][0] is at row thread_row() and column thread_column() of the block.
struct ThreadSums {
  float at[kPlainThreadTile][kPlainThreadTile] = {};
};
RT_DEVICE int thread_row() { return static_cast<int>(threadIdx.x) / kPlainSide * kPlainThreadTile; }
RT_DEVICE int thread_column() { return static_cast<int>(threadIdx.x) % kPlainSide * kPlainThreadTile; }

/// Loads tiles of one operand of a product into shared memory. Lines are rows of the left matrix or columns
/// of the right one; terms are indices of the reduction axis. `Side` must have
///   Line line(int64_t), Term term(int64_t)  precomputed parts of the address of a line or a term
///   float at(Line, Term)                    the element
///   kLinesAreNeighbors                      true if lines, not terms, are adjacent in memory
/// Lines and terms outside of the product are never read.
template <typename Side>
class TileLoader {
  static constexpr bool kByLine = Side::kLinesAreNeighbors;
  static constexpr int kAcross = kByLine ? kPlainTile : kPlainDepth;
  static constexpr int kStep = kBlockThreads / kAcross;
  static constexpr int kLines = kByLine ? 1 : kPlainTile / kStep;
  static constexpr int kTerms = kByLine ? kPlainDepth / kStep : 1;

 public:
  RT_DEVICE TileLoader(const Side& side, int64_t first_line, int64_t num_lines) : side_(side) {
    for (int i = 0; i < kLines; ++i) {
      const int64_t line = first_line + own_line(i);
      inside_[i] = line < num_lines;
      lines_[i] = side.line(inside_[i] ? line : 0);
    }
  }
  /// Fills tile[term][line] with the terms from `first` on; terms from `end` on are zero.
  template <typename Tile>
  RT_DEVICE void load(int64_t first, int64_t end, Tile& tile) const {
    for (int j = 0; j < kTerms; ++j) {
      const bool any = first + own_term(j) < end;
      const auto term = side_.term(any ? first + own_term(j) : first);
      for (int i = 0; i < kLines; ++i)
        tile[own_term(j)][own_line(i)] = any && inside_[i] ? side_.at(lines_[i], term) : 0.0F;
    }
  }

 private:
  RT_DEVICE static int own_line(int i) {
    const int thread = static_cast<int>(threadIdx.x);
    return kByLine ? thread % kAcross : thread / kAcross + i * kStep;
  }
  RT_DEVICE static int own_term(int j) {
    const int thread = static_cast<int>(threadIdx.x);
    return kByLine ? thread / kAcross + j * kStep : thread % kAcross;
  }

  const Side& side_;
  typename Side::Line lines_[kLines];
  bool inside_[kLines];
};

/// The part of an m x n product that a block computes: outputs from (row, column) on, over terms [begin,
/// end).
struct ProductPart {
  int64_t m, n;
  int64_t row, column;
  int64_t begin, end;  ///< range of terms
};

/// Computes the sums of a thread's outputs. All threads of the block must call this function, and only once
/// per kernel.
template <typename Left, typename Right>
RT_DEVICE ThreadSums add_products(const Left& left, const Right& right, const ProductPart& part) {
  RT_SHARED(rows, float[kPlainDepth][kPlainTile + 1]);
  RT_SHARED(columns, float[kPlainDepth][kPlainTile + 1]);
  const TileLoader<Left> load_rows(left, part.row, part.m);
  const TileLoader<Right> load_columns(right, part.column, part.n);
  const int row = thread_row(), column = thread_column();
  ThreadSums sums;
  for (int64_t term = part.begin; term < part.end; term += kPlainDepth) {
    load_rows.load(term, part.end, rows);
    load_columns.load(term, part.end, columns);
    rt::sync_block();
    for (int t = 0; t < kPlainDepth; ++t) {
      for (int r = 0; r < kPlainThreadTile; ++r) {
        for (int s = 0; s < kPlainThreadTile; ++s) sums.at[r][s] += rows[t][row + r] * columns[t][column + s];
      }
    }
    rt::sync_block();
  }
  return sums;
}

/// A side (operand) in memory: element (line i, term p) is at data[i * of_line + p * of_term].
template <typename T, bool lines_are_neighbors>
struct Strided {
  using Line = int64_t;
  using Term = int64_t;
  static constexpr bool kLinesAreNeighbors = lines_are_neighbors;
  const T* data;
  int64_t of_line;
  int64_t of_term;

  RT_DEVICE Line line(int64_t i) const { return i * of_line; }
  RT_DEVICE Term term(int64_t p) const { return p * of_term; }
  RT_DEVICE float at(Line line, Term term) const { return rt::to_float(data[line + term]); }
};

/// Epilogue of a matmul: adds bias and residual (either may be null) to a sum, then applies ReLU, which
/// preserves NaN.
template <typename C>
struct Epilogue {
  const float* bias;
  const C* residual;
  bool relu;

  RT_DEVICE C operator()(float sum, int64_t column, int64_t at) const {
    if (bias != nullptr) sum += bias[column];
    if (residual != nullptr) sum += rt::to_float(residual[at]);
    return rt::from_float<C>(relu && sum < 0 ? 0.0F : sum);
  }
};

/// Calls body(row, column, sum) for each output of the thread that is inside of the m x n product.
template <typename Body>
RT_DEVICE void for_each_sum(const ThreadSums& sums, const ProductPart& part, Body body) {
  for (int r = 0; r < kPlainThreadTile; ++r) {
    const int64_t row = part.row + thread_row() + r;
    for (int s = 0; s < kPlainThreadTile; ++s) {
      const int64_t column = part.column + thread_column() + s;
      if (row < part.m && column < part.n) body(row, column, sums.at[r][s]);
    }
  }
}

}  // namespace hearth::ops
