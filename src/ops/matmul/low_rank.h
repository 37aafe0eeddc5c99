#pragma once

#include <optional>
#include <vector>

#include "ir/op_def.h"
#include "ops/matmul/matmul_kernel.h"

/// Low-rank products of LoRA adapters that read the same input x: h [N, sum of ranks] = x A^T holds the
/// product of each adapter in its own columns.
namespace hearth::ops {

/// y_i = base_i + factors[i] h[:, columns of i] b_i^T; the columns of adapter i start at begins[i].
extern const ir::OpDef low_rank_up;
/// Gradients of h, dh[:, columns of i] = factors[i] dy_i b_i, and of each b_i in f32,
/// factors[i] dy_i^T h[:, columns of i]. The adapters' columns of h are adjacent, in their order.
extern const ir::OpDef low_rank_grad;

/// Max number of adapters of a node and of its products, which a GPU kernel gets in one parameter.
inline constexpr size_t kMaxAdapters = 8, kMaxProducts = 2 * kMaxAdapters;
/// Ranks, features and columns of h are multiples of this: 16 bytes of 16-bit elements.
inline constexpr int64_t kAdapterUnit = 8;

/// Product of one adapter, c = factor a b + residual. a, b and c start at element `a_begin`, `b_begin` and
/// `c_begin` of input `a`, input `b` and output `c`. The residual is an input with the layout of c.
struct LowRankProduct {
  enum class Part : uint8_t { a, b, c };
  MatmulShape shape;
  Part h = Part::a;  ///< the matrix that is in columns of h
  size_t a = 0, b = 0, c = 0;
  int64_t a_begin = 0, b_begin = 0, c_begin = 0;
  std::optional<size_t> residual;
  double factor = 1;
  bool is_f32 = false;  ///< true if c is f32
};
/// Returns the products of a node of low_rank_up or low_rank_grad.
std::vector<LowRankProduct> low_rank_up_products(const ir::NodeView& node);
std::vector<LowRankProduct> low_rank_grad_products(const ir::NodeView& node);

}  // namespace hearth::ops
