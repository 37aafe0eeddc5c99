#include "backend/cpu/blocks.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/clones.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {
namespace {

/// A block of matrix a. If packed, it consists of slivers of kSliver rows each, which start `sliver` floats
/// apart.
struct Block {
  const float* data;
  int64_t row, k;
  int64_t sliver_rows, sliver;
};

/// Packs slivers of a transposed matrix a, one inner index (term) at a time, so that each row of the source
/// is read sequentially.
HEARTH_CLONES void copy_slivers(const float* from, int64_t k, int64_t rows, int64_t depth, float* out) {
  const int64_t whole = rows / kSliver * kSliver;
  for (int64_t p = 0; p < depth; ++p, from += k, out += kSliverTerm) {
    float* to = out;
    for (int64_t r = 0; r < whole; r += kSliver, to += kSliverTerm * depth)
      std::memcpy(to, from + r, kSliver * sizeof(float));
    for (int64_t r = whole; r < rows; ++r) to[r - whole] = from[r];
  }
}

/// Packs slivers of a matrix a with contiguous rows. The transposition is fastest for 16 rows, so if
/// `rows_left` allows it, it also copies the two rows after each sliver, which are never read.
void transpose_slivers(const float* from, int64_t row, int64_t rows, int64_t rows_left, int64_t depth,
                       float* out) {
  for (int64_t r = 0; r < rows; r += kSliver) {
    simd().transpose(from + r * row, row, std::min(kSliverTerm, rows_left - r), depth, out, kSliverTerm);
    out += kSliverTerm * depth;
  }
}

bool has_tiles(const BlockProduct& product) {
  return product.pairs && product.packed_a != nullptr && simd().gemm_tiles != nullptr;
}

/// Packs up to kTile rows of matrix a into tiles [ceil(depth / kTile)][kTile][kTile]. Missing rows are set to
/// zero. Elements past `depth` are never read and stay uninitialized.
void pack_tiles(const BlockProduct& product, const float* from, int64_t rows, int64_t depth, float* out) {
  for (int64_t p = 0; p < depth; p += kTile, out += kTile * kTile) {
    const int64_t terms = std::min(kTile, depth - p);
    if (product.a_k == 1) {
      for (int64_t r = 0; r < rows; ++r) std::copy_n(from + r * product.a_row + p, terms, out + r * kTile);
    } else {
      simd().transpose(from + p * product.a_k, product.a_k, terms, rows, out, kTile);
    }
    std::fill(out + rows * kTile, out + kTile * kTile, 0.0F);
  }
}

/// Multiplies a packed block of matrix a by a panel of b: AMX tiles compute the multiples of kTile along n
/// and k, vector instructions the rest. Which of the two computes an element depends on n and k only, so a
/// row has the same bits in every block.
void multiply_tiles(int64_t rows, int64_t columns, int64_t depth, const float* a, const float* b,
                    int64_t b_row, float* c, int64_t c_row, bool accumulate) {
  const int64_t a_row = round_up(depth, kTile) * kTile;
  const int64_t whole = depth / kTile * kTile, wide = whole > 0 ? columns / kTile * kTile : 0;
  if (wide > 0) simd().gemm_tiles(rows, wide, whole, a, a_row, b, b_row, c, c_row, accumulate);
  const auto multiply_rest = [&](int64_t from_k, int64_t from_n, int64_t to_n) {
    for (int64_t i = 0; i < rows && from_n < to_n; i += kTile) {
      for (int64_t p = from_k; p < depth; p += kTile) {
        simd().gemm_pairs(std::min(kTile, rows - i), to_n - from_n, std::min(kTile, depth - p),
                          a + i / kTile * a_row + p * kTile, kTile, 1, b + p * b_row + from_n, b_row,
                          c + i * c_row + from_n, c_row, accumulate || p > 0);
      }
    }
  };
  multiply_rest(whole, 0, wide);
  multiply_rest(0, wide, columns);
}

Block block_of(const BlockProduct& product, int64_t i, int64_t rows, int64_t p, int64_t depth) {
  const float* from = product.a + i * product.a_row + p * product.a_k;
  if (product.packed_a == nullptr) return {from, product.a_row, product.a_k, rows, 0};
  if (has_tiles(product)) {
    for (int64_t r = 0; r < rows; r += kTile) {
      pack_tiles(product, from + r * product.a_row, std::min(kTile, rows - r), depth,
                 product.packed_a + r * round_up(depth, kTile));
    }
    return {product.packed_a, 0, 0, rows, 0};
  }
  if (product.a_k == 1) {
    transpose_slivers(from, product.a_row, rows, product.m - i, depth, product.packed_a);
  } else {
    copy_slivers(from, product.a_k, rows, depth, product.packed_a);
  }
  return {product.packed_a, 1, kSliverTerm, kSliver, kSliverTerm * depth};
}

}  // namespace

int64_t packed_floats(int64_t rows, int64_t terms) {
  return round_up(std::min(rows, kRowBlock), kSliver) / kSliver * kSliverTerm *
         std::min(round_up(terms, kTile), kDepthBlock);
}

int64_t row_unit(bool pairs) { return pairs && simd().gemm_tiles != nullptr ? kTile : kSliver; }

bool packs_a(int64_t n) { return n >= 3 * kPanel; }

bool has_pairs(DType a, DType b, int64_t depth) {
  return a == DType::bf16 && b == DType::bf16 && depth % 2 == 0 && simd().gemm_pairs != nullptr;
}

void multiply_blocks(const BlockProduct& product, int64_t b_row,
                     FunctionRef<const float*(int64_t, int64_t, int64_t, int64_t)> panel) {
  const int64_t num_depths = std::max<int64_t>(1, (product.k + kDepthBlock - 1) / kDepthBlock);
  const bool tiles = has_tiles(product);
  const int64_t depth_block = round_up((product.k + num_depths - 1) / num_depths, tiles ? kTile : 1);
  const int64_t num_blocks = std::max<int64_t>(1, (product.m + kRowBlock - 1) / kRowBlock);
  const int64_t row_block = round_up((product.m + num_blocks - 1) / num_blocks, row_unit(product.pairs));
  const auto multiply = product.pairs ? simd().gemm_pairs : simd().gemm;
  for (int64_t p = 0; p < product.k; p += depth_block) {
    const int64_t depth = std::min(depth_block, product.k - p);
    for (int64_t i = 0; i < product.m; i += row_block) {
      const int64_t rows = std::min(row_block, product.m - i);
      const Block block = block_of(product, i, rows, p, depth);
      for (int64_t j = 0; j < product.n; j += kPanel) {
        const int64_t columns = std::min(kPanel, product.n - j);
        const float* right = panel(p, depth, j, columns);
        if (tiles) {
          multiply_tiles(rows, columns, depth, block.data, right, b_row, product.c + i * product.c_row + j,
                         product.c_row, product.accumulate || p > 0);
          continue;
        }
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
