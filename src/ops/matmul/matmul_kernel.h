#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "backend/gpu/blas.h"
#include "ir/op_def.h"

namespace hearth::ops {

/// c = activation(a b + bias + residual) on a GPU: a(i, p) lies at i * a_row + p * a_term of its array,
/// b(p, j) at p * b_term + j * b_column, c(i, j) and residual(i, j) at i * c_row + j. One of a's strides is
/// 1, and one of b's.
struct MatmulShape {
  int m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_term = 1;
  int64_t b_term = 0, b_column = 1;
  int64_t c_row = 0;
  bool relu = false;
};

/// That of a matmul's node.
MatmulShape matmul_shape_of(const ir::NodeView& node);

/// The kernel of the op matmul, for other ops' kernels.
ir::Kernel matmul_gpu(const ir::NodeView& node);

/// Arrays of one run on the GPU. `residual` has c's dtype and may be c: that adds to it.
struct MatmulArrays {
  const void* a = nullptr;
  const void* b = nullptr;
  const float* bias = nullptr;     ///< [n], or null
  const void* residual = nullptr;  ///< or null
  void* c = nullptr;
  std::byte* workspace = nullptr;
};

/// What a block of threads makes of a matmul: plain arithmetic on 64 x 64, or matrix tiles on 128 x 128,
/// 64 x 64, 128 x 16 or 16 x 128.
enum class MatmulWay : uint8_t { plain, large, small, tall, wide };
std::string_view name_of(MatmulWay way);
/// Every way for operands of that dtype.
std::span<const MatmulWay> ways_of(DType in);

/// Blocks that keep a GPU of the middle busy, whichever GPU it is: the order of sums must not depend on it.
inline constexpr int64_t kBusy = 96;
inline constexpr int64_t kMostSplits = 32;
/// Terms that a split must have at least, so that its sums are worth a detour.
inline constexpr int64_t kLeastTerms = 256;
/// Blocks whose last round, which leaves part of a GPU idle, is short beside the others; what they are worth
/// costs less than this share of the terms.
inline constexpr int64_t kManyRounds = 640, kEvenTerms = 16384;
/// In how many parts so many blocks deal out the terms of a matmul.
inline int choose_splits(int64_t blocks, int64_t terms) {
  const int64_t wanted = std::max(kBusy / blocks, std::min(kManyRounds / blocks, terms / kEvenTerms));
  return static_cast<int>(std::clamp<int64_t>(std::min(wanted, terms / kLeastTerms), 1, kMostSplits));
}

/// Hearth's own kernels for a matmul. 16-bit operands are multiplied by matrix tiles, f32 by plain
/// arithmetic; sums are f32 and their order depends on the shape alone.
class MatmulKernel {
 public:
  /// `a` and `b` have dtype `in`. `plain` is for f32, the others are for 16 bits.
  MatmulKernel(const MatmulShape& shape, DType in, DType out, MatmulWay way);
  MatmulKernel(const MatmulShape& shape, DType in, DType out)
      : MatmulKernel(shape, in, out, usual_way(shape, in)) {}
  /// What the shape suggests.
  static MatmulWay usual_way(const MatmulShape& shape, DType in);
  int64_t workspace_bytes() const;
  void launch(void* stream, const MatmulArrays& arrays) const;

 private:
  MatmulShape shape_;
  DType in_, out_;
  MatmulWay way_;
};

/// A matmul done the way that was measured: by Hearth's kernels or by the vendor's library.
class ChosenMatmul {
 public:
  /// `way`: a name of MatmulWay or "library"; others, and "library" where it cannot multiply these, are the
  /// usual way. Under "library" there is no bias, and arrays are aligned to 64 bytes.
  ChosenMatmul(const MatmulShape& shape, DType in, DType out, std::string_view way);
  int64_t workspace_bytes() const;
  void launch(gpu::Stream& stream, const MatmulArrays& arrays) const;

 private:
  MatmulKernel own_;
  std::optional<gpu::BlasMatmul> library_;
};

}  // namespace hearth::ops
