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

/// `data + offset` itself when it is f32, otherwise its copy in `scratch`.
const float* as_f32(DType dtype, const void* data, int64_t offset, int64_t count, float* scratch);

}  // namespace hearth::cpu
