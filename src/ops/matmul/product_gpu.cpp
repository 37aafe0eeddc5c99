#include "ops/matmul/product_blocks.h"

namespace hearth::ops {
namespace {

template <typename T, typename C>
void launch_all(void* stream, const ProductPlan& plan, const ProductArrays& arrays) {
  const Product& product = plan.product;
  const Out<C> out{.epilogue = {.bias = arrays.bias,
                                .residual = static_cast<const C*>(arrays.residual),
                                .relu = product.relu},
                   .c = static_cast<C*>(arrays.c),
                   .parts = plan.parts(arrays.workspace)};
  const auto *a = static_cast<const T*>(arrays.a), *b = static_cast<const T*>(arrays.b);
  if constexpr (std::is_same_v<T, float>) {
    launch_product<T>(stream, plan, PlainRows{a, product.a_row, product.a_term},
                      PlainRows{b, product.b_column, product.b_term}, out);
  } else {
    launch_product<T>(stream, plan, Operand<T>{a, product.a_row, product.a_term, product.m},
                      Operand<T>{b, product.b_column, product.b_term, product.n}, out);
  }
}
/// Into f32, or the operands' dtype; f32 operands into any.
template <typename T>
void launch_into(void* stream, const ProductPlan& plan, const ProductArrays& arrays, DType out) {
  if (out == DType::f32) return launch_all<T, float>(stream, plan, arrays);
  if constexpr (!std::is_same_v<T, float>) {
    launch_all<T, T>(stream, plan, arrays);
  } else {
    if (out == DType::bf16) return launch_all<T, rt::bf16>(stream, plan, arrays);
    launch_all<T, rt::f16>(stream, plan, arrays);
  }
}

}  // namespace

std::string_view name_of(ProductWay way) {
  constexpr std::string_view kNames[] = {"plain", "large", "small", "tall", "wide"};
  return kNames[static_cast<size_t>(way)];
}
std::span<const ProductWay> ways_of(DType in) {
  static constexpr ProductWay kPlain[] = {ProductWay::plain};
  static constexpr ProductWay kTiles[] = {ProductWay::large, ProductWay::small, ProductWay::tall,
                                          ProductWay::wide};
  return in == DType::f32 ? std::span<const ProductWay>(kPlain) : kTiles;
}

ProductWay ProductKernel::usual_way(const Product& product, DType in) {
  if (in == DType::f32) return ProductWay::plain;
  if (product.n <= Tall::kColumns) return ProductWay::tall;
  if (product.m <= Wide::kRows) return ProductWay::wide;
  return num_blocks(product, ProductWay::large) >= kBusy ? ProductWay::large : ProductWay::small;
}

ProductKernel::ProductKernel(const Product& product, DType in, DType out, ProductWay way)
    : product_(product), in_(in), out_(out), way_(way) {
  if (in != DType::f32 && out != DType::f32 && out != in) refuse_storage_type(out);
}

int64_t ProductKernel::workspace_bytes() const { return ProductPlan(product_, way_).workspace_bytes(); }

void ProductKernel::launch(void* stream, const ProductArrays& arrays) const {
  const ProductPlan plan(product_, way_);
  if (in_ == DType::f32) return launch_into<float>(stream, plan, arrays, out_);
  if (in_ == DType::bf16) return launch_into<rt::bf16>(stream, plan, arrays, out_);
  launch_into<rt::f16>(stream, plan, arrays, out_);
}

}  // namespace hearth::ops
