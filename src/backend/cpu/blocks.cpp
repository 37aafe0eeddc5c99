#include "backend/cpu/blocks.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/clones.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {
namespace {

/// Rows from i on and terms from p on; slivers of rows lie `sliver` floats apart.
struct Block {
  const float* data;
  int64_t row, k;
  int64_t sliver_rows, sliver;
};

/// Term by term, so that a's rows are read from end to end.
HEARTH_CLONES Block copy_slivers(const float* from, int64_t k, int64_t rows, int64_t depth, float* out) {
  const int64_t whole = rows / kSliver * kSliver;
  for (int64_t p = 0; p < depth; ++p, from += k) {
    float* to = out + p * kSliver;
    for (int64_t r = 0; r < whole; r += kSliver)
      std::memcpy(to + r * depth, from + r, kSliver * sizeof(float));
    for (int64_t r = whole; r < rows; ++r) to[whole * depth + r - whole] = from[r];
  }
  return {out, 1, kSliver, kSliver, kSliver * depth};
}

Block block_of(const BlockProduct& product, int64_t i, int64_t rows, int64_t p, int64_t depth) {
  const float* from = product.a + i * product.a_row + p * product.a_k;
  if (product.packed_a == nullptr) return {from, product.a_row, product.a_k, rows, 0};
  if (product.a_row == 1) return copy_slivers(from, product.a_k, rows, depth, product.packed_a);
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(from + r * product.a_row, depth, product.packed_a + r * kPackedRow);
  return {product.packed_a, kPackedRow, 1, rows, 0};
}

}  // namespace

bool packs_a(int64_t n, int64_t a_row, int64_t a_k) {
  return a_k == 1 ? n >= 8 * kPanel && a_row % 256 == 0 : n >= 3 * kPanel;
}

bool has_pairs(DType a, DType b, int64_t depth) {
  return a == DType::bf16 && b == DType::bf16 && depth % 2 == 0 && simd().gemm_pairs != nullptr;
}

void multiply_blocks(const BlockProduct& product, int64_t b_row,
                     FunctionRef<const float*(int64_t, int64_t, int64_t, int64_t)> panel) {
  const int64_t num_depths = std::max<int64_t>(1, (product.k + kDepthBlock - 1) / kDepthBlock);
  const int64_t depth_block = (product.k + num_depths - 1) / num_depths;
  const int64_t num_blocks = std::max<int64_t>(1, (product.m + kRowBlock - 1) / kRowBlock);
  const int64_t row_block = round_up((product.m + num_blocks - 1) / num_blocks, kSliver);
  const auto multiply = product.pairs ? simd().gemm_pairs : simd().gemm;
  for (int64_t p = 0; p < product.k; p += depth_block) {
    const int64_t depth = std::min(depth_block, product.k - p);
    for (int64_t i = 0; i < product.m; i += row_block) {
      const int64_t rows = std::min(row_block, product.m - i);
      const Block block = block_of(product, i, rows, p, depth);
      for (int64_t j = 0; j < product.n; j += kPanel) {
        const int64_t columns = std::min(kPanel, product.n - j);
        const float* right = panel(p, depth, j, columns);
        for (int64_t r = 0; r < rows; r += block.sliver_rows) {
          multiply(std::min(block.sliver_rows, rows - r), columns, depth,
                   block.data + r / block.sliver_rows * block.sliver, block.row, block.k, right, b_row,
                   product.c + (i + r) * product.c_row + j, product.c_row, product.accumulate || p > 0);
        }
      }
    }
  }
}

}  // namespace hearth::cpu
