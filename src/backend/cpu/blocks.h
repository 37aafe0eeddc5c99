#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/function_ref.h"

namespace hearth::cpu {

/// Size of a block of a: 336 x 384 floats are half of a 1 MiB L2 cache; 336 is a multiple of 14 rows.
inline constexpr int64_t kRowBlock = 336;
inline constexpr int64_t kDepthBlock = 384;
/// Number of rows of a that are packed together, term by term, and the floats from one term to the next (a
/// cache line).
inline constexpr int64_t kSliver = 14;
inline constexpr int64_t kSliverTerm = 16;
/// Returns the floats that the largest packed block takes, of an a with `rows` rows of `terms` terms; grows
/// with both.
int64_t packed_floats(int64_t rows, int64_t terms);

/// True if blocks of a are packed before they are multiplied by `n` columns of b.
bool packs_a(int64_t n);

/// Number of rows that are multiplied together; threads split a at multiples of it.
int64_t row_unit(bool pairs);

/// True if this processor multiplies pairs of bf16 for operands of these dtypes and an inner dimension of
/// `depth`.
bool has_pairs(DType a, DType b, int64_t depth);

/// One thread's part of a matmul: c[i * c_row + j] (+)= sum over p of a[i * a_row + p * a_k] * b[p][j].
/// Strides are in floats.
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

/// Multiplies block by block, so that a block of a stays in the L2 cache while every panel of b is read.
/// `panel(p, depth, j, columns)` returns rows [p, p + depth) of b's columns from j on, with a row stride of
/// b_row floats.
void multiply_blocks(const BlockProduct& product, int64_t b_row,
                     FunctionRef<const float*(int64_t, int64_t, int64_t, int64_t)> panel);
/// Multiplies all of b, packed into panels [ceil(n / kPanel)][k][kPanel].
void multiply_blocks(const BlockProduct& product, const float* panels);

}  // namespace hearth::cpu
