#pragma once

#include <cstdint>

#include "backend/cpu/simd/simd.h"
#include "base/dtype.h"

namespace hearth::cpu {

/// The matmul that attention uses, and the word format of its operands along the reduction axis: one f32
/// element per word, or a pair of adjacent bf16 elements, so that bf16 arrays are never widened. Sums are f32
/// in both cases.
struct Products {
  /// True if words are pairs of bf16.
  bool pairs;
  /// Selects pairs if the array is bf16 and the CPU has instructions that multiply them.
  static Products of(DType dtype, int64_t head_size);
  /// Returns the number of words that hold `terms` elements.
  int64_t words(int64_t terms) const { return pairs ? (terms + 1) / 2 : terms; }
  auto multiply() const { return pairs ? simd().gemm_pairs : simd().gemm; }
};

/// words[t][c] = the pair of rows 2t and 2t + 1 in bf16; a missing last row counts as zero.
void join_tokens(const uint16_t* rows, int64_t row, int64_t count, int64_t size, float* words,
                 int64_t word_row);

/// Columns of one head in an array [tokens, num_heads * head_size].
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
  /// Returns the first `count` rows as words along a row: the array itself, or widened to `scratch`.
  View view(const void* data, int64_t count, Products products, float* scratch) const;
  /// Returns the first `count` rows as words of row pairs, [ceil(count / 2)][size]; equal to view() if a word
  /// has one element.
  View joined(const void* data, int64_t count, Products products, float* scratch) const;
  /// Copies `count` rows from `row` on to `out`, with a stride of out_row floats: as words along a row
  /// (load_words), as words of row pairs (load_joined), or in f32 (load).
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
