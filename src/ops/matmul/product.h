#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ir/op_def.h"

namespace hearth::ops {

/// c = activation(a b + bias + residual) on a GPU: a(i, p) lies at i * a_row + p * a_term of its array,
/// b(p, j) at p * b_term + j * b_column, c(i, j) and residual(i, j) at i * c_row + j. One of a's strides is
/// 1, and one of b's.
struct Product {
  int m = 0, n = 0, k = 0;
  int64_t a_row = 0, a_term = 1;
  int64_t b_term = 0, b_column = 1;
  int64_t c_row = 0;
  bool relu = false;
};

/// That of a matmul's node.
Product product_of(const ir::NodeView& node);

/// Arrays of one run on the GPU. `residual` has c's dtype and may be c: that adds to it.
struct ProductArrays {
  const void* a = nullptr;
  const void* b = nullptr;
  const float* bias = nullptr;     ///< [n], or null
  const void* residual = nullptr;  ///< or null
  void* c = nullptr;
  std::byte* workspace = nullptr;
};

/// What a block of threads makes of a product: plain arithmetic on 64 x 64, or matrix tiles on 128 x 128,
/// 64 x 64, 128 x 16 or 16 x 128.
enum class ProductWay : uint8_t { plain, large, small, tall, wide };
std::string_view name_of(ProductWay way);
/// Every way for operands of that dtype.
std::span<const ProductWay> ways_of(DType in);

/// Hearth's own kernels for a product. 16-bit operands are multiplied by matrix tiles, f32 by plain
/// arithmetic; sums are f32 and their order depends on the shape alone.
class ProductKernel {
 public:
  /// `a` and `b` have dtype `in`. `plain` is for f32, the others are for 16 bits.
  ProductKernel(const Product& product, DType in, DType out, ProductWay way);
  ProductKernel(const Product& product, DType in, DType out)
      : ProductKernel(product, in, out, usual_way(product, in)) {}
  /// What the shape suggests.
  static ProductWay usual_way(const Product& product, DType in);
  int64_t workspace_bytes() const;
  void launch(void* stream, const ProductArrays& arrays) const;

 private:
  Product product_;
  DType in_, out_;
  ProductWay way_;
};

}  // namespace hearth::ops
