#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/dtype.h"

/// The vendor's BLAS, used by Stream::multiply: rocBLAS for HIP, cuBLASLt for CUDA, plain loops for emulated
/// GPUs that are configured with one.
namespace hearth::gpu {

/// Descriptor of an algorithm of the library, which is valid for one version of the library only.
struct BlasAlgorithm {
  std::array<uint64_t, 8> words = {};
  auto operator<=>(const BlasAlgorithm&) const = default;
};
/// Maximum number of algorithms that Stream::algorithms() lists.
inline constexpr int kMaxBlasAlgorithms = 8;

/// A matmul in the terms of BLAS: d = op(a) op(b) + c, with column-major arrays, where element (i, j) is at
/// index i + j * leading. op(a) is a matrix [m, k]: either a, or with transpose_a the transpose of an array
/// [k, m]; op(b) is a matrix [k, n] accordingly. a and b have dtype `in`; c and d have dtype `out` and share
/// leading_c. Sums are f32.
struct BlasMatmul {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t leading_a = 0, leading_b = 0, leading_c = 0;
  DType in = DType::f32, out = DType::f32;
  /// Algorithm to use; nullopt, or not valid for this matmul: the library's first choice.
  std::optional<BlasAlgorithm> algorithm = {};
  auto operator<=>(const BlasMatmul&) const = default;
};

/// Arrays of one matmul on the GPU, aligned to 64 bytes. If `c` is null, nothing is added; c may be d.
struct BlasArrays {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  std::byte* workspace = nullptr;  ///< blas_workspace_bytes() bytes
};

/// Name and version of the library, such as "rocBLAS 3.1.0"; empty without one.
std::string blas_library();
/// True if the library can multiply operands of dtype `in` to a result of dtype `out`: f32 to f32, or a
/// 16-bit dtype to f32 or the same dtype.
bool blas_takes(DType in, DType out);
/// Bytes of workspace that each matmul needs.
int64_t blas_workspace_bytes();

}  // namespace hearth::gpu
