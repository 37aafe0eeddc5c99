#include "ops/gpu_support.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/product.h"

namespace hearth::ops {

Product product_of(const ir::NodeView& node) {
  const bool transpose_a = node.attrs.integer_or("transpose_a", 0) != 0;
  const bool transpose_b = node.attrs.integer_or("transpose_b", 0) != 0;
  const Shape& a = node.in_type(0).shape;
  const Shape& b = node.in_type(1).shape;
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

/// What the attribute `way` says, or the usual one.
ProductWay way_of(const ir::NodeView& node) {
  const DType in = node.in_type(0).dtype;
  const std::string wanted = node.attrs.text_or("way", "");
  for (const ProductWay way : ways_of(in)) {
    if (name_of(way) == wanted) return way;
  }
  return ProductKernel::usual_way(product_of(node), in);
}

}  // namespace

ir::Kernel matmul_gpu(const ir::NodeView& node) {
  const ProductKernel kernel(product_of(node), node.in_type(0).dtype, node.out_type(0).dtype, way_of(node));
  const bool bias = node.has_input(2), residual = node.has_input(3);
  const auto run = [=](const ir::KernelArgs& args) {
    kernel.launch(args.stream->handle(), {.a = args.in[0],
                                          .b = args.in[1],
                                          .bias = bias ? input_of<float>(args, 2) : nullptr,
                                          .residual = residual ? args.in[3] : nullptr,
                                          .c = args.out[0],
                                          .workspace = args.workspace});
  };
  return {.run = run, .workspace_bytes = kernel.workspace_bytes()};
}

}  // namespace hearth::ops
