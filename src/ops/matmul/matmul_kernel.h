#pragma once

#include <algorithm>
#include <array>
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

/// Returns the matmul for the BLAS library, which is column-major: it computes c^T = b^T a^T, so a and b are
/// exchanged.
gpu::BlasMatmul blas_matmul_of(const MatmulShape& shape, DType in, DType out);

/// Returns the GPU kernel of a matmul node; other ops use it too.
ir::Kernel matmul_gpu(const ir::NodeView& node);

/// Returns the kernel of a matmul inside another op, whose inputs with these indices are a, b and the
/// residual.
ir::Kernel matmul_gpu(const ir::NodeView& matmul, std::array<size_t, 3> inputs);

/// Device arrays of one run. `residual` has the dtype of c; it may be c itself, so that the product is added
/// to c.
struct MatmulArrays {
  const void* a = nullptr;
  const void* b = nullptr;
  const float* bias = nullptr;     ///< [n], or null
  const void* residual = nullptr;  ///< [m, n], or null
  void* c = nullptr;
  std::byte* workspace = nullptr;
};

/// Kernel variant of a matmul, by the outputs (rows x columns) that one thread block computes. plain: 64 x 64
/// with f32 arithmetic. With matrix instructions, large: 128 x 128, small: 64 x 64, tall: 128 x 16, wide: 16
/// x 128.
enum class MatmulVariant : uint8_t { plain, large, small, tall, wide };
/// Returns the variant's name, as used in the attribute `way`.
std::string_view name_of(MatmulVariant way);
/// Returns all variants for operands of dtype `in`.
std::span<const MatmulVariant> variants_of(DType in);

/// Number of blocks that keep a mid-range GPU busy. Constant for all GPUs, because the order of sums must not
/// depend on the GPU.
inline constexpr int64_t kMinBusyBlocks = 96;
/// Target number of blocks of split-K: on GPUs with 32, 42, 128 or 132 compute units, the last wave of blocks
/// is nearly full. Constant for all GPUs, because the order of sums must not depend on the GPU.
inline constexpr int64_t kSplitBlocks = 126;
/// Maximum number of splits of a split-K matmul.
inline constexpr int64_t kMaxSplits = 32;
/// Minimum number of terms per split, below which split-K does not pay off.
inline constexpr int64_t kMinTermsPerSplit = 256;
/// If each split keeps at least kMinTermsPerExtraSplit terms, split-K uses up to kMaxSplitBlocks blocks
/// instead of kSplitBlocks: with more and shorter waves of blocks, less time is lost in the last, partly
/// idle wave, and the reduction of the splits costs little.
inline constexpr int64_t kMaxSplitBlocks = 640, kMinTermsPerExtraSplit = 16384;
/// Returns the number of splits of the reduction axis (split-K), for a matmul of `blocks` blocks over `terms`
/// terms.
inline int choose_splits(int64_t blocks, int64_t terms) {
  const int64_t wanted =
      std::max(kSplitBlocks / blocks, std::min(kMaxSplitBlocks / blocks, terms / kMinTermsPerExtraSplit));
  return static_cast<int>(std::clamp<int64_t>(std::min(wanted, terms / kMinTermsPerSplit), 1, kMaxSplits));
}

/// Launches Hearth's own kernels of a matmul. 16-bit operands are multiplied with matrix instructions, f32
/// operands with f32 arithmetic. Sums are f32, in an order that depends only on the shape.
class MatmulKernel {
 public:
  /// The operands a and b have dtype `in`, the result `out`. Variant `plain` requires an f32 `in`, the other
  /// variants a 16-bit one.
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

/// Launches a matmul by the variant that autotuning selected: one of Hearth's kernels or the vendor's BLAS
/// library.
class ChosenMatmul {
 public:
  /// `way` is a name of MatmulVariant or selects the library (is_library_variant). An unknown name selects
  /// the default variant, and so does the library if it does not support these dtypes or the activation. The
  /// library supports no bias and requires arrays aligned to 64 bytes.
  ChosenMatmul(const MatmulShape& shape, DType in, DType out, std::string_view way);
  int64_t workspace_bytes() const;
  void launch(gpu::Stream& stream, const MatmulArrays& arrays) const;

 private:
  MatmulKernel own_;
  std::optional<gpu::BlasMatmul> library_;
};

}  // namespace hearth::ops
