#include "ops/matmul/product_blocks.h"

namespace hearth::ops {
namespace {

template <typename T, typename C>
void launch_all(void* stream, const MatmulPlan& plan, const MatmulArrays& arrays) {
  const MatmulShape& shape = plan.shape;
  const Out<C> out{.epilogue = {.bias = arrays.bias,
                                .residual = static_cast<const C*>(arrays.residual),
                                .relu = shape.relu},
                   .c = static_cast<C*>(arrays.c),
                   .parts = plan.parts(arrays.workspace)};
  const auto *a = static_cast<const T*>(arrays.a), *b = static_cast<const T*>(arrays.b);
  if constexpr (std::is_same_v<T, float>) {
    launch_matmul<T>(stream, plan, PlainRows{a, shape.a_row, shape.a_term},
                     PlainRows{b, shape.b_column, shape.b_term}, out);
  } else {
    const Operand<T> rows{a, shape.a_row, shape.a_term, shape.m};
    const Operand<T> columns{b, shape.b_column, shape.b_term, shape.n};
    if (is_aligned(rows, shape.k) && is_aligned(columns, shape.k))
      return launch_matmul<T>(stream, plan, AlignedOperand<T>{rows}, AlignedOperand<T>{columns}, out);
    launch_matmul<T>(stream, plan, rows, columns, out);
  }
}
/// Launches the kernel for output dtype `out`: f32 or the operands' dtype T; any floating dtype if T is
/// float.
template <typename T>
void launch_into(void* stream, const MatmulPlan& plan, const MatmulArrays& arrays, DType out) {
  if (out == DType::f32) return launch_all<T, float>(stream, plan, arrays);
  if constexpr (!std::is_same_v<T, float>) {
    launch_all<T, T>(stream, plan, arrays);
  } else {
    if (out == DType::bf16) return launch_all<T, rt::bf16>(stream, plan, arrays);
    launch_all<T, rt::f16>(stream, plan, arrays);
  }
}

}  // namespace

MatmulVariant MatmulKernel::default_variant(const MatmulShape& shape, DType in) {
  if (in == DType::f32) return MatmulVariant::plain;
  if (shape.n <= Tall::kColumns) return MatmulVariant::tall;
  if (shape.m <= Wide::kRows) return MatmulVariant::wide;
  // Large blocks are used if enough of them exist to keep a GPU busy, counting splits (split-K) of at least
  // kManyTerms terms, whose reduction is cheap.
  constexpr int64_t kManyTerms = 4 * kMinTermsPerSplit;
  const int64_t splits =
      fills_large(shape.m, shape.n) ? std::clamp<int64_t>(shape.k / kManyTerms, 1, kMaxSplits) : 1;
  return num_blocks(shape, MatmulVariant::large) * splits >= kMinBusyBlocks ? MatmulVariant::large
                                                                            : MatmulVariant::small;
}

MatmulKernel::MatmulKernel(const MatmulShape& shape, DType in, DType out, MatmulVariant way)
    : shape_(shape), in_(in), out_(out), variant_(way) {
  if (in != DType::f32 && out != DType::f32 && out != in) refuse_storage_type(out);
}

int64_t MatmulKernel::workspace_bytes() const { return MatmulPlan(shape_, variant_).workspace_bytes(); }

void MatmulKernel::launch(void* stream, const MatmulArrays& arrays) const {
  const MatmulPlan plan(shape_, variant_);
  if (in_ == DType::f32) return launch_into<float>(stream, plan, arrays, out_);
  if (in_ == DType::bf16) return launch_into<rt::bf16>(stream, plan, arrays, out_);
  launch_into<rt::f16>(stream, plan, arrays, out_);
}

}  // namespace hearth::ops
