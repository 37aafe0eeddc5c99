#pragma once

#include "ops/gpu_support.h"

namespace hearth::ops {

/// Outputs of a block of multiply_tile, kProductTile x kProductTile; a thread has a square of them.
inline constexpr int kProductTile = 64;

/// Blocks of kBlockThreads for an m x n product.
inline rt::Shape product_shape(int64_t m, int64_t n) {
  return {rt::Dim3{static_cast<unsigned>(divided_up(n, kProductTile)),
                   static_cast<unsigned>(divided_up(m, kProductTile)), 1},
          rt::Dim3{kBlockThreads, 1, 1}};
}

/// The block's tile of an m x n product of k terms in f32, for any card and shape: store(i, j, the sum of
/// left(i, p) right(p, j) over p). `along_terms`: whether neighbouring terms, not columns, of `right` lie
/// side by side in memory.
template <bool along_terms, typename Left, typename Right, typename Store>
RT_DEVICE void multiply_tile(int m, int n, int k, Left left_at, Right right_at, Store store) {
  constexpr int kOwn = 4, kSide = kProductTile / kOwn, kDepth = 16;
  static_assert(kSide * kSide == kBlockThreads);
  RT_SHARED(left, float[kDepth][kProductTile + 1]);
  RT_SHARED(right, float[kDepth][kProductTile + 1]);
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = static_cast<int>(blockIdx.y) * kProductTile;
  const int first_column = static_cast<int>(blockIdx.x) * kProductTile;
  const int own_row = thread / kSide * kOwn, own_column = thread % kSide * kOwn;
  float sums[kOwn][kOwn] = {};
  for (int p = 0; p < k; p += kDepth) {
    for (int e = thread; e < kProductTile * kDepth; e += kBlockThreads) {
      const int term = e % kDepth, line = e / kDepth;
      left[term][line] = p + term < k && first_row + line < m ? left_at(first_row + line, p + term) : 0.0F;
      const int right_term = along_terms ? term : e / kProductTile;
      const int right_line = along_terms ? line : e % kProductTile;
      right[right_term][right_line] = p + right_term < k && first_column + right_line < n
                                          ? right_at(p + right_term, first_column + right_line)
                                          : 0.0F;
    }
    rt::sync_block();
    for (int term = 0; term < kDepth; ++term) {
      for (int r = 0; r < kOwn; ++r) {
        for (int s = 0; s < kOwn; ++s) sums[r][s] += left[term][own_row + r] * right[term][own_column + s];
      }
    }
    rt::sync_block();
  }
  for (int r = 0; r < kOwn; ++r) {
    for (int s = 0; s < kOwn; ++s) {
      const int row = first_row + own_row + r, column = first_column + own_column + s;
      if (row < m && column < n) store(row, column, sums[r][s]);
    }
  }
}

}  // namespace hearth::ops
