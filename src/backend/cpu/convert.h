#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/threads.h"

namespace hearth::cpu {

/// Reads `count` elements of a floating dtype from element `offset` on as f32.
void load_f32(DType dtype, const void* data, int64_t offset, int64_t count, float* out);
/// The same for all of a large array, on every thread.
void widen(DType dtype, const void* in, int64_t count, float* out, ThreadPool& threads);
/// Writes f32 as the dtype, rounding to nearest even.
void store_f32(DType dtype, const float* in, void* data, int64_t offset, int64_t count);

/// Whether no value is infinite or not a number.
bool all_finite(const float* values, int64_t count);

/// words[p][i] = the pair of rows[2p][i] (lower half) and rows[2p + 1][i], for bf16 [2 num_pairs][count].
void join_rows(const void* rows, int64_t num_pairs, int64_t count, float* words, ThreadPool& threads);
void join_rows(const void* rows, int64_t num_pairs, int64_t count, float* words);
/// The same for one pair of rows.
void join_row(const uint16_t* first, const uint16_t* second, int64_t count, float* words);

/// `data + offset` itself when it is f32, otherwise its copy in `scratch`.
const float* as_f32(DType dtype, const void* data, int64_t offset, int64_t count, float* scratch);

}  // namespace hearth::cpu
