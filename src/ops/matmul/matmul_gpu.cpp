#include "backend/gpu/blas.h"
#include "ops/gpu_support.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_kernel.h"

namespace hearth::ops {

MatmulShape matmul_shape_of(const ir::NodeView& node) {
  const bool transpose_a = node.attrs.integer_or("transpose_a", 0) != 0;
  const bool transpose_b = node.attrs.integer_or("transpose_b", 0) != 0;
  const Shape& a = node.in_type(MatmulIn::a).shape;
  const Shape& b = node.in_type(MatmulIn::b).shape;
  const int64_t n = b[transpose_b ? 0 : 1];
  return {.m = static_cast<int>(a[transpose_a ? 1 : 0]),
          .n = static_cast<int>(n),
          .k = static_cast<int>(a[transpose_a ? 0 : 1]),
          .a_row = transpose_a ? 1 : a[1],
          .a_term = transpose_a ? a[1] : 1,
          .b_term = transpose_b ? 1 : b[1],
          .b_column = transpose_b ? b[1] : 1,
          .c_row = n,
          .relu = node.attrs.text_or("activation", "none") == "relu"};
}

namespace {

/// How BLAS sees an array whose element (row, column) lies at row * row_stride + column * column_stride.
struct Side {
  bool transposed;
  int64_t leading;
};
Side side_of(int64_t row_stride, int64_t column_stride, int64_t num_rows) {
  if (row_stride == 1 && column_stride >= num_rows) return {.transposed = false, .leading = column_stride};
  return {.transposed = true, .leading = row_stride};
}

bool library_takes(const ir::NodeView& node) {
  return !node.has_input(MatmulIn::bias) && node.attrs.text_or("activation", "none") == "none" &&
         gpu::blas_takes(node.in_type(MatmulIn::a).dtype, node.out_type(0).dtype);
}

/// Columns first, where a matmul is c^T = b^T a^T.
gpu::BlasMatmul blas_matmul_of(const ir::NodeView& node) {
  const MatmulShape p = matmul_shape_of(node);
  const Side a = side_of(p.b_column, p.b_term, p.n), b = side_of(p.a_term, p.a_row, p.k);
  return {.transpose_a = a.transposed,
          .transpose_b = b.transposed,
          .m = p.n,
          .n = p.m,
          .k = p.k,
          .leading_a = a.leading,
          .leading_b = b.leading,
          .leading_c = p.c_row,
          .in = node.in_type(MatmulIn::a).dtype,
          .out = node.out_type(0).dtype};
}

ir::Kernel library_kernel(const ir::NodeView& node) {
  const gpu::BlasMatmul blas = blas_matmul_of(node);
  const bool residual = node.has_input(MatmulIn::residual);
  const auto run = [=](const ir::KernelArgs& args) {
    args.stream->multiply(blas, {.a = args.in[MatmulIn::b],
                                 .b = args.in[MatmulIn::a],
                                 .c = residual ? args.in[MatmulIn::residual] : nullptr,
                                 .d = args.out[0],
                                 .workspace = args.workspace});
  };
  return {.run = run, .workspace_bytes = gpu::blas_workspace_bytes()};
}

/// What the attribute `way` says, or the usual one.
MatmulWay way_of(const ir::NodeView& node) {
  const DType in = node.in_type(MatmulIn::a).dtype;
  const std::string wanted = node.attrs.text_or("way", "");
  for (const MatmulWay way : ways_of(in)) {
    if (name_of(way) == wanted) return way;
  }
  return MatmulKernel::usual_way(matmul_shape_of(node), in);
}

}  // namespace

std::vector<std::string_view> matmul_ways(const ir::NodeView& node, bool has_library) {
  const DType in = node.in_type(MatmulIn::a).dtype;
  const MatmulWay usual = MatmulKernel::usual_way(matmul_shape_of(node), in);
  std::vector<std::string_view> names = {name_of(usual)};
  for (const MatmulWay way : ways_of(in)) {
    if (way != usual) names.push_back(name_of(way));
  }
  if (has_library && library_takes(node)) names.push_back(kLibraryWay);
  return names;
}

ir::Kernel matmul_gpu(const ir::NodeView& node) {
  if (node.attrs.text_or("way", "") == kLibraryWay && library_takes(node)) return library_kernel(node);
  const MatmulKernel kernel(matmul_shape_of(node), node.in_type(MatmulIn::a).dtype, node.out_type(0).dtype,
                            way_of(node));
  const bool bias = node.has_input(MatmulIn::bias), residual = node.has_input(MatmulIn::residual);
  const auto run = [=](const ir::KernelArgs& args) {
    kernel.launch(args.stream->handle(), {.a = args.in[MatmulIn::a],
                                          .b = args.in[MatmulIn::b],
                                          .bias = bias ? input_of<float>(args, MatmulIn::bias) : nullptr,
                                          .residual = residual ? args.in[MatmulIn::residual] : nullptr,
                                          .c = args.out[0],
                                          .workspace = args.workspace});
  };
  return {.run = run, .workspace_bytes = kernel.workspace_bytes()};
}

}  // namespace hearth::ops
