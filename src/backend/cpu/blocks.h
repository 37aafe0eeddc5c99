#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/function_ref.h"

namespace hearth::cpu {

/// Sizes of a block of a: 336 x 384 floats are half of a 1 MiB second-level cache; 336 is a multiple of 14
/// rows.
inline constexpr int64_t kRowBlock = 336;
inline constexpr int64_t kDepthBlock = 384;
/// Rows of a that are copied side by side, term by term, and floats from one term to the next: a cache line.
inline constexpr int64_t kSliver = 14;
inline constexpr int64_t kSliverTerm = 16;
/// Floats of the largest copied block of an a of `rows` rows of `terms` terms; it grows with both.
int64_t packed_floats(int64_t rows, int64_t terms);

/// Whether a block of a is copied before `n` columns of b pass by.
bool packs_a(int64_t n);

/// Rows that are multiplied together; threads' parts of a are cut at its multiples.
int64_t row_unit(bool pairs);

/// Whether a sum of `depth` terms over operands of these dtypes is multiplied by pairs of bf16 here.
bool has_pairs(DType a, DType b, int64_t depth);

/// One thread's part of a matmul: c[i * c_row + j] (+)= sum over p of a[i * a_row + p * a_k] * b[p][j].
struct BlockProduct {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  const float* a = nullptr;
  int64_t a_row = 0;
  int64_t a_k = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  float* packed_a = nullptr;  ///< packed_floats(m, k), or null: a is read as it lies
  bool accumulate = false;
  bool pairs = false;  ///< a and b hold pairs of bf16, see SimdKernels::gemm_pairs
};

/// Multiplies block by block, so that a block of a stays in the second-level cache while every panel of b
/// passes by. `panel(p, depth, j, columns)` gives rows [p, p + depth) of b's columns from j on, b_row floats
/// apart.
void multiply_blocks(const BlockProduct& product, int64_t b_row,
                     FunctionRef<const float*(int64_t, int64_t, int64_t, int64_t)> panel);
/// The same over all of b in panels [ceil(n / kPanel)][k][kPanel].
void multiply_blocks(const BlockProduct& product, const float* panels);

}  // namespace hearth::cpu
