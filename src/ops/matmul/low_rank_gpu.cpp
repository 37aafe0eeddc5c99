// Products of the adapters of one input on a GPU. With 16 bits, one launch computes the blocks of all
// products, and split-K takes one more launch, which adds up the partial sums of all of them.
#include "ops/matmul/low_rank.h"
#include "ops/matmul/product_blocks.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Destination of a product's sums. c and the residual (null: none) are f32 if `is_f32`, otherwise T.
template <typename T>
struct AdapterOut {
  const void* residual;
  void* c;
  float* parts;  ///< split-K partial sums [splits][m][n]; null: sums are written to c
  float factor;
  bool is_f32;
};
template <typename C, typename T>
RT_DEVICE void store_sum(const AdapterOut<T>& out, int64_t at, float sum) {
  const auto* residual = static_cast<const C*>(out.residual);
  const float more = residual == nullptr ? 0.0F : rt::to_float(residual[at]);
  static_cast<C*>(out.c)[at] = rt::from_float<C>(rt::multiply_then_add(out.factor, sum, more));
}
template <typename T>
RT_DEVICE void finish(const MatmulShape& shape, const AdapterOut<T>& out, int64_t row, int64_t column,
                      float sum) {
  const int64_t at = row * shape.c_row + column;
  out.is_f32 ? store_sum<float>(out, at, sum) : store_sum<T>(out, at, sum);
}

/// A product of a launch. Each split of its terms (split-K) has `num_blocks` blocks of outputs, in row-major
/// order; split s has the blocks of the launch from first_block + s * num_blocks on.
template <typename T>
struct Product {
  AlignedOperand<T> rows, columns;
  MatmulShape shape;
  AdapterOut<T> out;
  int first_block, num_blocks, blocks_across, splits;
};
template <typename T>
struct Products {
  Product<T> at[kMaxProducts];
  int count;
};
static_assert(sizeof(Products<rt::bf16>) <= 3584, "kernel parameters have at most 4096 bytes");

/// Returns the terms [first, end) of a split.
template <typename T>
RT_DEVICE Terms terms_of(const Product<T>& product, int split) {
  const int steps = (product.shape.k + kDepth - 1) / kDepth;
  const int end = (split + 1) * steps / product.splits * kDepth;
  return {split * steps / product.splits * kDepth, end < product.shape.k ? end : product.shape.k};
}

template <typename T, typename B>
__global__ void __launch_bounds__(kBlockThreads) multiply_all(Products<T> all) {
  const int block = static_cast<int>(blockIdx.x);
  int i = 0;
  while (i + 1 < all.count && all.at[i + 1].first_block <= block) ++i;
  const Product<T> product = all.at[i];
  const MatmulShape& shape = product.shape;
  const int split = (block - product.first_block) / product.num_blocks;
  const int number = (block - product.first_block) % product.num_blocks;
  float* parts = product.out.parts;
  if (parts != nullptr) parts += static_cast<int64_t>(split) * shape.m * shape.n;
  for_each_tile_sum<T, B>(product.rows, product.columns, number / product.blocks_across * B::kRows,
                          number % product.blocks_across * B::kColumns, terms_of(product, split),
                          [&](int, int) {
                            return [&](int row, int column, float sum) {
                              if (row >= shape.m || column >= shape.n) return;
                              if (parts == nullptr) return finish(shape, product.out, row, column, sum);
                              parts[static_cast<int64_t>(row) * shape.n + column] = sum;
                            };
                          });
}

/// Adds up the partial sums of split-K. Blocks with blockIdx.y = i process product i.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) add_all_parts(Products<T> all) {
  const Product<T> product = all.at[blockIdx.y];
  if (product.splits == 1) return;
  const int64_t count = static_cast<int64_t>(product.shape.m) * product.shape.n;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    float sum = 0;
    for (int s = 0; s < product.splits; ++s) sum += product.out.parts[s * count + i];
    const int number = static_cast<int>(i);
    finish(product.shape, product.out, number / product.shape.n, number % product.shape.n, sum);
  }
}

/// Number of blocks of a launch that split-K aims for: these products read more than they compute, and
/// several blocks in each unit of a large GPU keep enough loads in flight. Constant for all GPUs (see
/// kSplitBlocks).
constexpr int64_t kReadingBlocks = 512;

/// The products of a node and how they are computed, which depends on the shapes alone.
struct Plan {
  std::vector<LowRankProduct> products;
  std::vector<int> splits;  ///< of each product; all splits have about as many terms
  MatmulVariant variant = MatmulVariant::tall;
  bool is_split = false;

  explicit Plan(std::vector<LowRankProduct> of) : products(std::move(of)) {
    for (const LowRankProduct& p : products) {
      if (p.shape.n > Tall::kColumns) variant = MatmulVariant::small;
    }
    int64_t terms = 0;
    for (const LowRankProduct& p : products) terms += num_blocks(p.shape, variant) * p.shape.k;
    const int64_t terms_per_split = std::max(ceil_div(terms, kReadingBlocks), kMinTermsPerSplit);
    for (const LowRankProduct& p : products) {
      splits.push_back(static_cast<int>(std::min(ceil_div(p.shape.k, terms_per_split), kMaxSplits)));
      is_split = is_split || splits.back() > 1;
    }
  }
  /// Returns the floats of the partial sums of product `i`.
  int64_t num_parts(size_t i) const {
    return splits[i] == 1 ? 0 : int64_t{splits[i]} * products[i].shape.m * products[i].shape.n;
  }
  int64_t workspace_bytes() const {
    int64_t floats = 0;
    for (size_t i = 0; i < products.size(); ++i) floats += num_parts(i);
    return floats * int64_t{sizeof(float)};
  }
};

template <typename T>
AdapterOut<T> out_of(const LowRankProduct& p, const KernelArgs& args, float* parts) {
  const int64_t first_byte = p.c_begin * (p.is_f32 ? int64_t{sizeof(float)} : int64_t{sizeof(T)});
  return {.residual = p.residual ? input_of<std::byte>(args, *p.residual) : nullptr,
          .c = output_of<std::byte>(args, p.c) + first_byte,
          .parts = parts,
          .factor = static_cast<float>(p.factor),
          .is_f32 = p.is_f32};
}

/// Fills in the table of a launch. Returns the number of blocks.
template <typename T>
int64_t fill(const Plan& plan, const KernelArgs& args, Products<T>& all) {
  auto* parts = reinterpret_cast<float*>(args.workspace);
  int64_t first_block = 0;
  for (size_t i = 0; i < plan.products.size(); ++i) {
    const LowRankProduct& p = plan.products[i];
    const MatmulShape& s = p.shape;
    const int64_t blocks = num_blocks(s, plan.variant);
    all.at[all.count++] = {.rows = {{input_of<T>(args, p.a) + p.a_begin, s.a_row, s.a_term, s.m}},
                           .columns = {{input_of<T>(args, p.b) + p.b_begin, s.b_column, s.b_term, s.n}},
                           .shape = s,
                           .out = out_of<T>(p, args, plan.splits[i] == 1 ? nullptr : parts),
                           .first_block = static_cast<int>(first_block),
                           .num_blocks = static_cast<int>(blocks),
                           .blocks_across = static_cast<int>(ceil_div(s.n, extent_of(plan.variant).columns)),
                           .splits = plan.splits[i]};
    first_block += blocks * plan.splits[i];
    parts += plan.num_parts(i);
  }
  return first_block;
}

template <typename T>
void launch_all(const Plan& plan, const KernelArgs& args) {
  Products<T> all = {};
  const int64_t blocks = fill(plan, args, all);
  auto* const kernel = plan.variant == MatmulVariant::tall ? multiply_all<T, Tall> : multiply_all<T, Small>;
  rt::launch(kernel, {blocks, kBlockThreads}, args.stream->handle(), all);
  if (!plan.is_split) return;
  int64_t count = 0;
  for (const LowRankProduct& p : plan.products)
    count = std::max(count, static_cast<int64_t>(p.shape.m) * p.shape.n);
  const rt::Dim3 grid{static_cast<unsigned>(num_stride_blocks(count)), static_cast<unsigned>(all.count), 1};
  rt::launch(add_all_parts<T>, {grid, rt::Dim3{kBlockThreads, 1, 1}}, args.stream->handle(), all);
}

/// The products one after another, in plain arithmetic.
ir::Kernel plain(const std::vector<LowRankProduct>& products) {
  int64_t bytes = 0;
  for (const LowRankProduct& p : products)
    bytes = std::max(bytes, MatmulPlan(p.shape, MatmulVariant::plain).workspace_bytes());
  const auto run = [products](const KernelArgs& args) {
    for (const LowRankProduct& p : products) {
      const MatmulShape& s = p.shape;
      const MatmulPlan plan(s, MatmulVariant::plain);
      launch_matmul<float>(args.stream->handle(), plan,
                           PlainRows{input_of<float>(args, p.a) + p.a_begin, s.a_row, s.a_term},
                           PlainRows{input_of<float>(args, p.b) + p.b_begin, s.b_column, s.b_term},
                           out_of<float>(p, args, plan.parts(args.workspace)));
    }
  };
  return {.run = run, .workspace_bytes = bytes};
}

template <std::vector<LowRankProduct> (*products_of)(const NodeView&)>
ir::Kernel low_rank_gpu(const NodeView& node) {
  const std::vector<LowRankProduct> products = products_of(node);
  return with_storage_type(node.in_type(0).dtype, [&](auto t) -> ir::Kernel {
    using T = decltype(t);
    if constexpr (std::is_same_v<T, float>) {
      return plain(products);
    } else {
      const Plan plan(products);
      return {.run = [plan](const KernelArgs& args) { launch_all<T>(plan, args); },
              .workspace_bytes = plan.workspace_bytes()};
    }
  });
}

const GpuKernels kKernels = {{.op = "low_rank_up", .one = low_rank_gpu<low_rank_up_products>},
                             {.op = "low_rank_grad", .one = low_rank_gpu<low_rank_grad_products>}};

}  // namespace
}  // namespace hearth::ops
