#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "backend/gpu/blas.h"
#include "ir/op_def.h"

namespace hearth::ops {

/// Layout of a matmul on a GPU, c = activation(a b + bias + residual), with strides in elements: a(i, p) is
/// at i * a_row + p * a_term, b(p, j) at p * b_term + j * b_column, c(i, j) and residual(i, j) at i * c_row +
/// j. One of a's strides must be 1, and one of b's.
struct MatmulShape {
  int m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_term = 1;
  int64_t b_term = 0, b_column = 1;
  int64_t c_row = 0;
  bool relu = false;
};

/// Returns the layout of a matmul node.
MatmulShape matmul_shape_of(const ir::NodeView& node);

/// Returns the kernel of the op matmul, for kernels of other ops.
ir::Kernel matmul_gpu(const ir::NodeView& node);

/// Device arrays of one run. `residual` has c's dtype and may be c, which accumulates into it.
struct MatmulArrays {
  const void* a = nullptr;
  const void* b = nullptr;
  const float* bias = nullptr;     ///< [n], or null
  const void* residual = nullptr;  ///< or null
  void* c = nullptr;
  std::byte* workspace = nullptr;
};

/// Kernel variant of a matmul: the outputs that one thread block computes. plain: 64 x 64 with plain
/// arithmetic; large, small, tall, wide: 128 x 128, 64 x 64, 128 x 16, 16 x 128 with matrix tiles.
enum class MatmulVariant : uint8_t { plain, large, small, tall, wide };
/// Returns the variant's name.
std::string_view name_of(MatmulVariant way);
/// Returns all variants for operands of that dtype.
std::span<const MatmulVariant> variants_of(DType in);

/// Number of blocks that keep a mid-range GPU busy. Constant for all GPUs, because the order of sums must not
/// depend on the GPU.
inline constexpr int64_t kMinBusyBlocks = 96;
/// Maximum number of splits.
inline constexpr int64_t kMaxSplits = 32;
/// Minimum number of terms per split, below which split-K does not pay off.
inline constexpr int64_t kMinTermsPerSplit = 256;
/// Split-K goes beyond kMinBusyBlocks, up to kMaxSplitBlocks blocks, if each split keeps
/// kMinTermsPerExtraSplit terms: with many waves of blocks the last one, which leaves part of a GPU idle, is
/// short, and the reduction costs little.
inline constexpr int64_t kMaxSplitBlocks = 640, kMinTermsPerExtraSplit = 16384;
/// Returns the number of splits of the reduction axis (split-K) for a matmul of `blocks` blocks.
inline int choose_splits(int64_t blocks, int64_t terms) {
  const int64_t wanted =
      std::max(kMinBusyBlocks / blocks, std::min(kMaxSplitBlocks / blocks, terms / kMinTermsPerExtraSplit));
  return static_cast<int>(std::clamp<int64_t>(std::min(wanted, terms / kMinTermsPerSplit), 1, kMaxSplits));
}

/// Hearth's kernels for a matmul. 16-bit operands are multiplied with matrix instructions, f32 with plain
/// arithmetic. Sums are f32, in an order that depends only on the shape.
class MatmulKernel {
 public:
  /// `a` and `b` have dtype `in`. The variant `plain` is for f32, the others for 16-bit dtypes.
  MatmulKernel(const MatmulShape& shape, DType in, DType out, MatmulVariant way);
  MatmulKernel(const MatmulShape& shape, DType in, DType out)
      : MatmulKernel(shape, in, out, default_variant(shape, in)) {}
  /// Returns the default variant for the shape.
  static MatmulVariant default_variant(const MatmulShape& shape, DType in);
  int64_t workspace_bytes() const;
  void launch(void* stream, const MatmulArrays& arrays) const;

 private:
  MatmulShape shape_;
  DType in_, out_;
  MatmulVariant variant_;
};

/// A matmul by the variant that autotuning selected: Hearth's kernels or the vendor's library.
class ChosenMatmul {
 public:
  /// `way` is a name of MatmulVariant or "library"; an unknown name, or "library" where it cannot multiply
  /// these, selects the default variant. "library" supports no bias and requires arrays aligned to 64 bytes.
  ChosenMatmul(const MatmulShape& shape, DType in, DType out, std::string_view way);
  int64_t workspace_bytes() const;
  void launch(gpu::Stream& stream, const MatmulArrays& arrays) const;

 private:
  MatmulKernel own_;
  std::optional<gpu::BlasMatmul> library_;
};

}  // namespace hearth::ops
