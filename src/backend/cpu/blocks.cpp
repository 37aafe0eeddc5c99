#include "backend/cpu/blocks.h"

#include <algorithm>

#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {
namespace {

/// Rows from i on and terms from p on.
struct Block {
  const float* data;
  int64_t row, k;
};

Block block_of(const BlockProduct& product, int64_t i, int64_t rows, int64_t p, int64_t depth) {
  const float* from = product.a + i * product.a_row + p * product.a_k;
  if (product.packed_a == nullptr) return {from, product.a_row, product.a_k};
  if (product.a_k == 1) {
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(from + r * product.a_row, depth, product.packed_a + r * kPackedRow);
  } else {
    transpose_rows(from, product.a_k, depth, rows, product.packed_a, kPackedRow);
  }
  return {product.packed_a, kPackedRow, 1};
}

}  // namespace

bool packs_a(int64_t n, int64_t a_row, int64_t a_k) {
  return n >= 8 * kPanel && (a_k == 1 ? a_row : a_k) % 256 == 0;
}

void multiply_blocks(const BlockProduct& product, int64_t b_row,
                     FunctionRef<const float*(int64_t, int64_t, int64_t, int64_t)> panel) {
  const int64_t num_depths = std::max<int64_t>(1, (product.k + kDepthBlock - 1) / kDepthBlock);
  const int64_t depth_block = (product.k + num_depths - 1) / num_depths;
  for (int64_t p = 0; p < product.k; p += depth_block) {
    const int64_t depth = std::min(depth_block, product.k - p);
    for (int64_t i = 0; i < product.m; i += kRowBlock) {
      const int64_t rows = std::min(kRowBlock, product.m - i);
      const Block block = block_of(product, i, rows, p, depth);
      for (int64_t j = 0; j < product.n; j += kPanel) {
        const int64_t columns = std::min(kPanel, product.n - j);
        simd().gemm(rows, columns, depth, block.data, block.row, block.k, panel(p, depth, j, columns), b_row,
                    product.c + i * product.c_row + j, product.c_row, product.accumulate || p > 0);
      }
    }
  }
}

}  // namespace hearth::cpu
