#include "ops/gpu_support.h"
#include "ops/matmul/matmul.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Outputs of a block, kTile x kTile; each of its threads makes kOwn x kOwn of them.
constexpr int kTile = 64;
constexpr int kOwn = 4;
constexpr int kSide = kTile / kOwn;
/// Terms that a block holds at a time.
constexpr int kDepth = 16;
static_assert(kSide * kSide == kBlockThreads);

/// a(i, p) lies at i * a_row + p * a_term, b(p, j) at p * b_term + j * b_column.
struct Product {
  int m, n, k;
  int64_t a_row, a_term, b_term, b_column;
  bool relu;
};

/// Plain arithmetic in f32, for any card and any shape: what a vendor's library is checked against, and
/// replaced by where it fails.
template <typename T, typename C>
__global__ void __launch_bounds__(kBlockThreads)
    multiply(const T* a, const T* b, const float* bias, const C* residual, C* c, Product product) {
  RT_SHARED(left, float[kDepth][kTile + 1]);
  RT_SHARED(right, float[kDepth][kTile + 1]);
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = static_cast<int>(blockIdx.y) * kTile,
            first_column = static_cast<int>(blockIdx.x) * kTile;
  const int own_row = thread / kSide * kOwn, own_column = thread % kSide * kOwn;
  float sums[kOwn][kOwn] = {};
  for (int p = 0; p < product.k; p += kDepth) {
    for (int e = thread; e < kTile * kDepth; e += kBlockThreads) {
      const int term = e % kDepth, line = e / kDepth;
      const int64_t row = first_row + line, column = first_column + line;
      const bool inside = p + term < product.k;
      left[term][line] = inside && row < product.m
                             ? rt::to_float(a[row * product.a_row + (p + term) * product.a_term])
                             : 0.0F;
      right[term][line] = inside && column < product.n
                              ? rt::to_float(b[(p + term) * product.b_term + column * product.b_column])
                              : 0.0F;
    }
    rt::sync_block();
    for (int term = 0; term < kDepth; ++term) {
      for (int r = 0; r < kOwn; ++r) {
        for (int s = 0; s < kOwn; ++s) sums[r][s] += left[term][own_row + r] * right[term][own_column + s];
      }
    }
    rt::sync_block();
  }
  for (int r = 0; r < kOwn; ++r) {
    const int64_t row = first_row + own_row + r;
    for (int s = 0; s < kOwn; ++s) {
      const int64_t column = first_column + own_column + s;
      if (row >= product.m || column >= product.n) continue;
      const int64_t at = row * product.n + column;
      float sum = sums[r][s];
      if (bias != nullptr) sum += bias[column];
      if (residual != nullptr) sum += rt::to_float(residual[at]);
      c[at] = rt::from_float<C>(product.relu && !(sum > 0) ? 0.0F : sum);
    }
  }
}

Product product_of(const NodeView& node) {
  const bool transpose_a = node.attrs.integer_or("transpose_a", 0) != 0;
  const bool transpose_b = node.attrs.integer_or("transpose_b", 0) != 0;
  const Shape& a = node.in_type(0).shape;
  const Shape& b = node.in_type(1).shape;
  return {.m = static_cast<int>(a[transpose_a ? 1 : 0]),
          .n = static_cast<int>(b[transpose_b ? 0 : 1]),
          .k = static_cast<int>(a[transpose_a ? 0 : 1]),
          .a_row = transpose_a ? 1 : a[1],
          .a_term = transpose_a ? a[1] : 1,
          .b_term = transpose_b ? 1 : b[1],
          .b_column = transpose_b ? b[1] : 1,
          .relu = node.attrs.text_or("activation", "none") == "relu"};
}

template <typename T, typename C>
ir::Kernel make(const NodeView& node) {
  const Product product = product_of(node);
  const bool bias = node.has_input(2), residual = node.has_input(3);
  const rt::Dim3 blocks{static_cast<unsigned>(divided_up(product.n, kTile)),
                        static_cast<unsigned>(divided_up(product.m, kTile)), 1};
  const auto run = [=](const KernelArgs& args) {
    rt::launch(multiply<T, C>, {blocks, rt::Dim3{kBlockThreads, 1, 1}}, args.stream->handle(),
               input_of<T>(args, 0), input_of<T>(args, 1), bias ? input_of<float>(args, 2) : nullptr,
               residual ? input_of<C>(args, 3) : nullptr, output_of<C>(args, 0), product);
  };
  return {.run = run};
}

template <typename T>
ir::Kernel make_for(const NodeView& node) {
  return with_storage_type(node.out_type(0).dtype, [&](auto c) { return make<T, decltype(c)>(node); });
}

}  // namespace

ir::Kernel matmul_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto a) { return make_for<decltype(a)>(node); });
}

}  // namespace hearth::ops
