#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/threads.h"

namespace hearth::cpu {

/// sum[i] += in[i].
void add_row(const float* in, float* sum, int64_t count);
void add_row(const float* in, double* sum, int64_t count);
/// out[i] = factor * in[i]; `out` may equal `in`.
void scale_row(const float* in, float factor, float* out, int64_t count);
/// row[i] = act(row[i] + bias[i] + residual[i]); bias and residual may be null.
void finish_row(float* row, int64_t count, const float* bias, const float* residual, bool relu);

/// Returns the bytes of `count` floats.
inline int64_t float_bytes(int64_t count) { return count * static_cast<int64_t>(sizeof(float)); }

/// Packs b [k][n] (or its transpose [n][k]) into panels [ceil(n/32)][k][32], zero-padded, as f32.
void pack_panels(DType dtype, const void* b, int64_t k, int64_t n, bool transposed, float* panels,
                 float* scratch, ThreadPool& threads);
/// Returns the floats that pack_panels writes; its scratch needs as many (0 for f32).
int64_t panel_floats(int64_t k, int64_t n);

/// out[c][r] = in[r][c] for an f32 matrix with `rows` x `columns`.
void transpose(const float* in, int64_t rows, int64_t columns, float* out, ThreadPool& threads);

/// Rounds up to a multiple of `multiple`.
inline int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace hearth::cpu
