#pragma once

#include <string_view>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ops {

/// y = act(op(a) op(b) + bias + residual). Sums are f32; out_dtype, if present, replaces the dtype of a. On
/// GPUs the attribute `way` selects the kernel variant (a name of MatmulVariant, or "library" for the
/// vendor's BLAS).
extern const ir::OpDef matmul;
/// Indices of the inputs of matmul.
struct MatmulIn {
  enum : size_t { a, b, bias, residual };
};
/// Name of the variant that calls the vendor's BLAS library.
inline constexpr std::string_view kLibraryVariant = "library";
/// Returns word `index` of the attribute `way`: the variant of matmul number `index` of GpuKernel::matmuls.
/// Empty: the default variant.
std::string_view variant_at(const ir::Attrs& attrs, size_t index);
/// Cost of an m x n product over k terms that moves `bytes`: kernels compute it in blocks of up to 128 x 128
/// outputs.
ir::Cost product_cost(double m, double n, double k, double bytes, ir::KernelKind kernel);
/// Kind of kernel of a matmul, by Hearth or by the vendor's library.
ir::KernelKind matmul_kind(bool transpose_a, bool transpose_b);
/// Columns of length 1 at right angles that span those of a tall matrix. A column that the ones before it
/// span becomes one of a fixed direction.
extern const ir::OpDef orthogonalize;
/// y = x W^T for a frozen quantized matrix W (ops/matmul/quantized.h), which is dequantized tile by tile;
/// with `back`: y = x W.
extern const ir::OpDef quantized_linear;
/// Indices of the inputs of quantized_linear. For int8, absmax (the scales of the rows) is the last input.
struct QuantizedIn {
  enum : size_t { x, codes, absmax, absmax_scale, offset };
};

}  // namespace hearth::ops
