#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/function_ref.h"

namespace hearth::cpu {

/// Size of a block of matrix a: 336 rows (a multiple of the 14 rows of a sliver) of 384 floats take half of a
/// 1 MiB L2 cache.
inline constexpr int64_t kRowBlock = 336;
inline constexpr int64_t kDepthBlock = 384;
/// A sliver is a group of 14 rows of matrix a that are packed together: for each inner index, 14 floats and 2
/// unused ones, which fill a cache line of 16 floats.
inline constexpr int64_t kSliver = 14;
inline constexpr int64_t kSliverTerm = 16;
/// Returns the number of floats of the largest packed block of a matrix a with `rows` rows and inner
/// dimension `terms`. Grows with both.
int64_t packed_floats(int64_t rows, int64_t terms);

/// True if blocks of matrix a are packed before they are multiplied by `n` columns of b.
bool packs_a(int64_t n);

/// Number of rows that a kernel multiplies together. Threads split matrix a at multiples of this number.
int64_t row_unit(bool pairs);

/// True if this processor has instructions for pairs of bf16, and operands of these dtypes with inner
/// dimension `depth` can be read as such pairs.
bool has_pairs(DType a, DType b, int64_t depth);

/// A thread's part of a matmul: c[i * c_row + j] (+)= sum over p of a[i * a_row + p * a_k] * b[p][j]. Strides
/// are in floats.
struct BlockProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const float* a = nullptr;
  int64_t a_row = 0;
  int64_t a_k = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  float* packed_a = nullptr;  ///< packed_floats(m, k) floats, or null: a is read in place
  bool accumulate = false;
  bool pairs = false;  ///< true if a and b hold pairs of bf16, see SimdKernels::gemm_pairs
};

/// Multiplies block by block, so that a block of matrix a stays in the L2 cache while all panels of b are
/// read. `panel(p, depth, j, columns)` returns the address of element (p, j) of b, to read `depth` rows of
/// `columns` columns with a row stride of b_row floats.
void multiply_blocks(const BlockProduct& product, int64_t b_row,
                     FunctionRef<const float*(int64_t, int64_t, int64_t, int64_t)> panel);
/// Multiplies all of b, packed into panels [ceil(n / kPanel)][k][kPanel].
void multiply_blocks(const BlockProduct& product, const float* panels);

}  // namespace hearth::cpu
