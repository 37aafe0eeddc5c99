#pragma once

#include "backend/gpu/blas.h"
#include "backend/gpu/emu/stream.h"

namespace hearth::emu {

/// gpu::Stream::multiply of an emulated GPU, by plain loops. It spoils its workspace; a wrong one
/// forgets the last term, a fatal one ends the program, as rocBLAS does on a GPU that it has no kernels for.
/// Throws DeviceError where the GPU has none, or one that fails, and where a matmul is recorded that was
/// never asked for before.
void multiply(Stream& stream, const gpu::BlasMatmul& matmul, const gpu::BlasArrays& arrays);

}  // namespace hearth::emu
