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

/// Columns first, where a matmul is c^T = b^T a^T.
gpu::BlasMatmul blas_matmul_of(const MatmulShape& p, DType in, DType out) {
  const Side a = side_of(p.b_column, p.b_term, p.n), b = side_of(p.a_term, p.a_row, p.k);
  return {.transpose_a = a.transposed,
          .transpose_b = b.transposed,
          .m = p.n,
          .n = p.m,
          .k = p.k,
          .leading_a = a.leading,
          .leading_b = b.leading,
          .leading_c = p.c_row,
          .in = in,
          .out = out};
}

/// The one of that name, or the usual one.
MatmulWay way_named(std::string_view name, const MatmulShape& shape, DType in) {
  for (const MatmulWay way : ways_of(in)) {
    if (name_of(way) == name) return way;
  }
  return MatmulKernel::usual_way(shape, in);
}

bool library_takes(const ir::NodeView& node) {
  return !node.has_input(MatmulIn::bias) && node.attrs.text_or("activation", "none") == "none" &&
         gpu::blas_takes(node.in_type(MatmulIn::a).dtype, node.out_type(0).dtype);
}

}  // namespace

ChosenMatmul::ChosenMatmul(const MatmulShape& shape, DType in, DType out, std::string_view way)
    : own_(shape, in, out, way_named(way, shape, in)) {
  if (way == kLibraryWay && !shape.relu && gpu::blas_takes(in, out))
    library_ = blas_matmul_of(shape, in, out);
}

int64_t ChosenMatmul::workspace_bytes() const {
  return library_ ? gpu::blas_workspace_bytes() : own_.workspace_bytes();
}

void ChosenMatmul::launch(gpu::Stream& stream, const MatmulArrays& arrays) const {
  if (!library_) return own_.launch(stream.handle(), arrays);
  stream.multiply(
      *library_,
      {.a = arrays.b, .b = arrays.a, .c = arrays.residual, .d = arrays.c, .workspace = arrays.workspace});
}

std::string_view way_at(const ir::Attrs& attrs, size_t index) {
  if (!attrs.contains("way")) return "";
  std::string_view words = attrs.text("way");
  for (; index > 0; --index) {
    const size_t comma = words.find(',');
    if (comma == std::string_view::npos) return "";
    words.remove_prefix(comma + 1);
  }
  return words.substr(0, words.find(','));
}

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
  const std::string_view way = way_at(node.attrs, 0);
  const bool bias = node.has_input(MatmulIn::bias), residual = node.has_input(MatmulIn::residual);
  const ChosenMatmul matmul(matmul_shape_of(node), node.in_type(MatmulIn::a).dtype, node.out_type(0).dtype,
                            way == kLibraryWay && !library_takes(node) ? "" : way);
  const auto run = [=](const ir::KernelArgs& args) {
    matmul.launch(*args.stream, {.a = args.in[MatmulIn::a],
                                 .b = args.in[MatmulIn::b],
                                 .bias = bias ? input_of<float>(args, MatmulIn::bias) : nullptr,
                                 .residual = residual ? args.in[MatmulIn::residual] : nullptr,
                                 .c = args.out[0],
                                 .workspace = args.workspace});
  };
  return {.run = run, .workspace_bytes = matmul.workspace_bytes()};
}

}  // namespace hearth::ops
