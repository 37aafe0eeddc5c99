#pragma once

#include <cstddef>

/// Kernels with one mistake each, and the same without; compiled with every access watched.
namespace hearth::planted {

/// Each thread reads what its neighbor wrote; without the barrier between, if `wrong`.
void neighbors(void* stream, float* out, bool wrong);
/// Rounds that use one variable of the block again; without the second barrier, if `wrong`.
void rounds(void* stream, float* out, bool wrong);
/// Lanes that exchange through memory; without the warp's barrier, if `wrong`.
void lanes(void* stream, float* out, bool wrong);
/// Blocks that write their own value; one value for all, if `wrong`.
void blocks(void* stream, float* out, bool wrong);
/// Reads a variable of the block that only half of the threads have set, if `wrong`.
void unset(void* stream, float* out, bool wrong);
/// Writes 64 values; one too many, if `wrong`.
void global_bounds(void* stream, float* out, bool wrong);
/// Reads 64 variables of the block; one too many, if `wrong`.
void shared_bounds(void* stream, float* out, bool wrong);
/// Copies 16 bytes that another thread writes, if `wrong`.
void wide(void* stream, float* out, bool wrong);

}  // namespace hearth::planted
