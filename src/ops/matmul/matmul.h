#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/blas.h"
#include "ir/op_def.h"

namespace hearth::ops {

/// y = activation(op(a) op(b) + bias + residual), where op transposes if transpose_a or transpose_b is 1.
/// Sums are f32. The dtype of y is out_dtype if given, otherwise that of a. On GPUs the attribute `way`
/// selects the kernel variant: a name of MatmulVariant, "library" for the vendor's BLAS, or
/// library_variant().
extern const ir::OpDef matmul;
/// Attribute of a matmul x W^T: name of the MatmulPrecision to which its operands and those of the gradient
/// of x are rounded. The pass round_operands removes it; kernels ignore it.
inline constexpr std::string_view kOperandPrecision = "operands";
/// sum' = sum + op(a) op(b), in place; sum is f32. Attributes of matmul.
extern const ir::OpDef matmul_accumulate;
/// Returns the matmul of a matmul_accumulate node, with f32 result; with `residual`, the sum is its residual.
ir::StandaloneNode accumulated_matmul(const ir::NodeView& node, bool residual);
/// Indices of the inputs of matmul.
struct MatmulIn {
  enum : size_t { a, b, bias, residual };
};
/// Gives a matmul without bias and residual a residual of that type.
void add_residual(ir::StandaloneNode& matmul, const ir::Type& type);
/// Value of the attribute `way` that selects the vendor's BLAS library, with its first choice of an
/// algorithm.
inline constexpr std::string_view kLibraryVariant = "library";
/// True if the value selects the vendor's BLAS library, with or without an algorithm.
bool is_library_variant(std::string_view way);
/// Returns the value that selects an algorithm of the library: "library:" and 128 hexadecimal digits.
std::string library_variant(const gpu::BlasAlgorithm& algorithm);
/// Returns the algorithm in a value of the attribute `way`; nullopt if it selects none or is malformed.
std::optional<gpu::BlasAlgorithm> algorithm_in(std::string_view way);
/// Returns element `index` of the comma-separated attribute `way`: the variant of matmul number `index` of an
/// op's GpuKernel::matmuls. Empty for the default variant.
std::string_view variant_at(const ir::Attrs& attrs, size_t index);
/// Returns the cost of an [m, k] x [k, n] matmul that reads and writes `bytes` bytes, including the number of
/// GPU blocks and the share of their outputs that exist.
ir::Cost product_cost(double m, double n, double k, double bytes, ir::KernelKind kernel);
/// Returns the kernel kind of a matmul for the cost model: nn, nt or tn by its transposed operands.
ir::KernelKind matmul_kind(bool transpose_a, bool transpose_b);
/// Orthonormalizes the columns of a tall matrix [N, R], N >= R (Gram-Schmidt). A column that is linearly
/// dependent on the earlier columns is replaced by a fixed pseudorandom one.
extern const ir::OpDef orthogonalize;
/// y = x W^T or, with back=1, y = x W, plus the residual, for a frozen quantized matrix W (quantized.h),
/// which is dequantized tile by tile. y has out_dtype (default: x's dtype). W gets no gradient.
extern const ir::OpDef quantized_linear;
/// Indices of the inputs of quantized_linear. int8 and fp8 have no inputs after absmax, which then holds a
/// scale per row.
struct QuantizedIn {
  enum : size_t { x, codes, absmax, absmax_scale, offset, residual };
};

}  // namespace hearth::ops
