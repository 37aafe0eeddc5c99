#pragma once

#include <cstdint>

#include "backend/cpu/simd/simd.h"
#include "base/dtype.h"

namespace hearth::cpu {

/// The matmul that attention uses, and the format of its operands along the reduction axis: a 32-bit word
/// holds one f32 element, or a pair of adjacent bf16 elements, which the matmul multiplies without converting
/// them to f32. Sums are f32 in both cases.
struct Products {
  /// True if a word holds a pair of bf16, false if it holds one f32.
  bool pairs;
  /// Selects pairs if the array is bf16, the head size is even, and the CPU has instructions that multiply
  /// pairs.
  static Products of(DType dtype, int64_t head_size);
  /// Returns the number of words that hold `terms` elements.
  int64_t words(int64_t terms) const { return pairs ? (terms + 1) / 2 : terms; }
  auto multiply() const { return pairs ? simd().gemm_pairs : simd().gemm; }
};

/// Computes words[t][c] = the pair of bf16 elements c of rows 2t and 2t + 1; a missing last row counts as
/// zero. `row` and `word_row` are strides.
void join_tokens(const uint16_t* rows, int64_t row, int64_t count, int64_t size, float* words,
                 int64_t word_row);

/// The rows of one sequence and the columns of one head in an array [tokens, num_heads * head_size].
struct HeadRows {
  DType dtype;
  int64_t width;   ///< elements per token
  int64_t column;  ///< first column of the head
  int64_t size;
  int64_t first;  ///< first token of the sequence

  struct View {
    const float* data;
    int64_t row;
  };
  /// Returns the first `count` rows in words of adjacent elements of a row: a view of the array itself, or of
  /// `scratch` with the rows converted to f32.
  View view(const void* data, int64_t count, Products products, float* scratch) const;
  /// Returns the first `count` rows in words that hold elements of two adjacent rows, [ceil(count /
  /// 2)][size]; equal to view() if words are not pairs.
  View joined(const void* data, int64_t count, Products products, float* scratch) const;
  /// Copies `count` rows from `row` on to `out`, whose row stride is out_row words: in the format of view()
  /// (load_words), in the format of joined() (load_joined), or as f32 (load).
  void load_words(const void* data, int64_t row, int64_t count, Products products, float* out,
                  int64_t out_row) const;
  void load_joined(const void* data, int64_t row, int64_t count, float* out, int64_t out_row) const;
  void load(const void* data, int64_t row, int64_t count, float* out, int64_t out_row) const;
  void prefetch(const void* data, int64_t count) const;
  void store(const float* in, int64_t in_row, int64_t row, int64_t count, void* data) const;
};

/// Packs the transpose of rows [time][size] into panels [time / 32][size][32].
void pack_keys(HeadRows::View rows, int64_t time, int64_t size, float* panels);
/// Packs rows [time][size] into panels [size / 32][time][32].
void pack_columns(HeadRows::View rows, int64_t time, int64_t size, float* panels);

}  // namespace hearth::cpu
