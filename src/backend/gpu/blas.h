#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/dtype.h"

/// The vendor's library of matmuls, which Stream::multiply asks: rocBLAS for HIP, cuBLASLt for CUDA,
/// plain loops for emulated GPUs that are told to have one.
namespace hearth::gpu {

/// A matmul as BLAS states it, columns first: d = op(a) op(b) + c, where element (i, j) of an array lies at
/// i + j * leading. op(a) is [m, k]: a, or with transpose_a what lies as [k, m], transposed; op(b) is [k, n]
/// likewise. a and b have dtype `in`, c and d `out` and one leading. Sums are f32.
struct BlasMatmul {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t leading_a = 0, leading_b = 0, leading_c = 0;
  DType in = DType::f32, out = DType::f32;
  auto operator<=>(const BlasMatmul&) const = default;
};

/// Arrays of one matmul on the GPU, aligned to 64 bytes. `c` null: nothing is added; it may be d.
struct BlasArrays {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  std::byte* workspace = nullptr;  ///< of blas_workspace_bytes()
};

/// Its name and version, "rocBLAS 3.1.0"; empty where there is none.
std::string blas_library();
/// Whether it multiplies operands of that dtype into that one: f32 into f32, 16 bits into f32 or themselves.
bool blas_takes(DType in, DType out);
int64_t blas_workspace_bytes();

}  // namespace hearth::gpu
