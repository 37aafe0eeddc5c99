#include "backend/cpu/blocks.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/clones.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {
namespace {

/// Slivers of rows lie `sliver` floats apart.
struct Block {
  const float* data;
  int64_t row, k;
  int64_t sliver_rows, sliver;
};

/// Slivers of a transposed a, copied term by term, so that each of its rows is read from end to end.
HEARTH_CLONES void copy_slivers(const float* from, int64_t k, int64_t rows, int64_t depth, float* out) {
  const int64_t whole = rows / kSliver * kSliver;
  for (int64_t p = 0; p < depth; ++p, from += k, out += kSliverTerm) {
    float* to = out;
    for (int64_t r = 0; r < whole; r += kSliver, to += kSliverTerm * depth)
      std::memcpy(to, from + r, kSliver * sizeof(float));
    for (int64_t r = whole; r < rows; ++r) to[r - whole] = from[r];
  }
}

/// Slivers of an a whose terms are contiguous. Sixteen rows are transposed at a time where there are so many
/// (`rows_left`), which is fast; the last two are never read.
void turn_slivers(const float* from, int64_t row, int64_t rows, int64_t rows_left, int64_t depth,
                  float* out) {
  for (int64_t r = 0; r < rows; r += kSliver) {
    simd().transpose(from + r * row, row, std::min(kSliverTerm, rows_left - r), depth, out, kSliverTerm);
    out += kSliverTerm * depth;
  }
}

Block block_of(const BlockProduct& product, int64_t i, int64_t rows, int64_t p, int64_t depth) {
  const float* from = product.a + i * product.a_row + p * product.a_k;
  if (product.packed_a == nullptr) return {from, product.a_row, product.a_k, rows, 0};
  if (product.a_k == 1) {
    turn_slivers(from, product.a_row, rows, product.m - i, depth, product.packed_a);
  } else {
    copy_slivers(from, product.a_k, rows, depth, product.packed_a);
  }
  return {product.packed_a, 1, kSliverTerm, kSliver, kSliverTerm * depth};
}

}  // namespace

int64_t packed_floats(int64_t rows, int64_t terms) {
  return round_up(std::min(rows, kRowBlock), kSliver) / kSliver * kSliverTerm * std::min(terms, kDepthBlock);
}

bool packs_a(int64_t n) { return n >= 3 * kPanel; }

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

void multiply_blocks(const BlockProduct& product, const float* panels) {
  multiply_blocks(product, kPanel, [&](int64_t p, int64_t, int64_t j, int64_t) {
    return panels + j * product.k + p * kPanel;
  });
}

}  // namespace hearth::cpu
