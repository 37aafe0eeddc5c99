#pragma once

#include "backend/gpu/blas.h"
#include "backend/gpu/emu/stream.h"

namespace hearth::emu {

/// Implements gpu::Stream::multiply of an emulated GPU by plain loops. Overwrites its workspace.
/// GpuSettings::library selects faults: `wrong` omits the last term of each sum, `fatal` ends the program, as
/// rocBLAS does on a GPU that it has no kernels for. Throws DeviceError if the GPU has no library or a
/// failing one, or if the first matmul of a kind is being recorded.
void multiply(Stream& stream, const gpu::BlasMatmul& matmul, const gpu::BlasArrays& arrays);
/// Implements gpu::Stream::algorithms: one algorithm per element of GpuSettings::algorithm_threads.
std::vector<gpu::BlasAlgorithm> algorithms(const Gpu& gpu);
/// Implements gpu::Stream::algorithm_fault: algorithms of another version of the library are not valid.
std::string algorithm_fault(const Gpu& gpu, const gpu::BlasMatmul& matmul);

}  // namespace hearth::emu
