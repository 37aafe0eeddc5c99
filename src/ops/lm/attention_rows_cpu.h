#pragma once

#include <cstdint>

#include "backend/cpu/simd/simd.h"
#include "base/dtype.h"

namespace hearth::cpu {

/// Products whose operands come in words of one term of a sum, in f32, or of two neighboring ones, in bf16:
/// then arrays in bf16 are never widened. Sums are f32 either way.
struct Products {
  bool pairs;
  /// Pairs where the processor multiplies them.
  static Products of(DType dtype, int64_t head_size);
  int64_t words(int64_t terms) const { return pairs ? (terms + 1) / 2 : terms; }
  auto multiply() const { return pairs ? simd().gemm_pairs : simd().gemm; }
};

/// words[t][c] = the pair of rows 2t and 2t + 1 of bf16, of which the last may be missing: a zero.
void join_tokens(const uint16_t* rows, int64_t row, int64_t count, int64_t size, float* words,
                 int64_t word_row);

/// A head's part of an array [tokens, num_heads * head_size].
struct HeadRows {
  DType dtype;
  int64_t width;   ///< of a token
  int64_t column;  ///< where the head begins
  int64_t size;
  int64_t first;  ///< token 0 of the row

  struct View {
    const float* data;
    int64_t row;
  };
  /// The first `count` rows in words of terms within a row: as they lie, or widened to `scratch`.
  View view(const void* data, int64_t count, Products products, float* scratch) const;
  /// The same in words of terms of neighboring rows [ceil(count / 2)][size]; of one term, those of view().
  View joined(const void* data, int64_t count, Products products, float* scratch) const;
  /// `count` rows from `row` on, out_row floats apart: in words, in words of neighboring rows, and in f32.
  void load_words(const void* data, int64_t row, int64_t count, Products products, float* out,
                  int64_t out_row) const;
  void load_joined(const void* data, int64_t row, int64_t count, float* out, int64_t out_row) const;
  void load(const void* data, int64_t row, int64_t count, float* out, int64_t out_row) const;
  void prefetch(const void* data, int64_t count) const;
  void store(const float* in, int64_t in_row, int64_t row, int64_t count, void* data) const;
};

/// Panels [time / 32][size][32] of the transpose of rows [time][size].
void pack_keys(HeadRows::View rows, int64_t time, int64_t size, float* panels);
/// Panels [size / 32][time][32] of rows [time][size].
void pack_columns(HeadRows::View rows, int64_t time, int64_t size, float* panels);

}  // namespace hearth::cpu
