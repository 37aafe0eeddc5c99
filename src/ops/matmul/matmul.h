#pragma once

#include <string_view>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ops {

/// y = act(op(a) op(b) + bias + residual): sums in f32; out_dtype, if given, replaces the dtype of a. On
/// GPUs `way` says how blocks share it (MatmulWay), or "library": the vendor's multiplies.
extern const ir::OpDef matmul;
/// The inputs of its record, in their order.
struct MatmulIn {
  enum : size_t { a, b, bias, residual };
};
inline constexpr std::string_view kLibraryWay = "library";
/// Word `index` of the attribute `way`: how that one of GpuKernel::matmuls is done. Empty: the usual way.
std::string_view way_at(const ir::Attrs& attrs, size_t index);
/// Cost of an m x n product over k terms that moves `bytes`: kernels compute it in blocks of up to 128 x 128
/// outputs.
ir::Cost product_cost(double m, double n, double k, double bytes, ir::KernelKind kernel);
/// Kind of kernel of a matmul, by Hearth or by the vendor's library.
ir::KernelKind matmul_kind(bool transpose_a, bool transpose_b);
/// Columns of length 1 at right angles that span those of a tall matrix. A column that the ones before it
/// span becomes one of a fixed direction.
extern const ir::OpDef orthogonalize;
/// y = x W^T for a frozen matrix W in a few bits (ops/matmul/quantized.h), read tile by tile; back: x W.
extern const ir::OpDef quantized_linear;
/// The inputs of its record: the parts of int8 end with absmax, the rows' scales.
struct QuantizedIn {
  enum : size_t { x, codes, absmax, absmax_scale, offset };
};

}  // namespace hearth::ops
