#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/threads.h"

namespace hearth::cpu {

/// Reads `count` elements of a floating dtype from element `offset` on as f32.
void load_f32(DType dtype, const void* data, int64_t offset, int64_t count, float* out);
/// Converts a large array of `count` elements to f32 on all threads.
void widen(DType dtype, const void* in, int64_t count, float* out, ThreadPool& threads);
/// Converts f32 to the dtype, rounding to nearest even, and writes `count` elements from element `offset` on.
void store_f32(DType dtype, const float* in, void* data, int64_t offset, int64_t count);

/// True if every value is finite.
bool all_finite(const float* values, int64_t count);

/// Interleaves rows of bf16 [2 num_pairs][count]: words[p][i] = (rows[2p][i] in the lower half, rows[2p +
/// 1][i]).
void join_rows(const void* rows, int64_t num_pairs, int64_t count, float* words, ThreadPool& threads);
void join_rows(const void* rows, int64_t num_pairs, int64_t count, float* words);
/// Interleaves one pair of rows.
void join_row(const uint16_t* first, const uint16_t* second, int64_t count, float* words);

/// Returns `data + offset` if it is f32, otherwise `scratch`, into which `count` elements are converted.
const float* as_f32(DType dtype, const void* data, int64_t offset, int64_t count, float* scratch);

}  // namespace hearth::cpu
