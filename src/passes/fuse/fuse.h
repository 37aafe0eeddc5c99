#pragma once

#include "ir/graph.h"

namespace hearth::passes {

/// Folds bias_add, add (residual), relu and silu into the preceding matmul, convolution or batch norm, and
/// casts into the preceding row norm or (to f32) matmul, if nothing else reads the values in between. Runs
/// before backward(), which differentiates the fused ops.
void fuse_epilogues(ir::Graph& graph);

/// Folds sums of gradients into the op that computes the later term (matmul, gradient of a row norm or
/// embedding, on GPUs also of a convolution): the earlier term becomes its residual. Runs after backward().
void fuse_sums(ir::Graph& graph, bool on_gpu);

/// Fuses a matmul and the accumulate op that reads it into one matmul_accumulate. Runs after fuse_sums().
void fuse_accumulate(ir::Graph& graph);

/// Removes casts of a value that has been cast to the same dtype before. With `store_copies`, the gradient of
/// a row norm also stores the 16-bit copy that the matmuls before the norm read. Runs after fuse_sums().
void share_casts(ir::Graph& graph, bool store_copies);

/// Fuses convolution + relu + 2x2 max-pool over an input image into one op, which does not store the result
/// of the convolution. Runs after fuse_epilogues and before backward().
void fuse_conv_pool(ir::Graph& graph);

/// Options of fuse_norm.
struct NormFusion {
  /// True to let convolutions compute the batch moments (mean, variance) of their results.
  bool moments = false;
  bool gradients = false;  ///< true if the graph will be differentiated
};
/// Fuses batch normalization into the preceding convolution. If its statistics are given, nothing else reads
/// the convolution's result, and no gradients are needed, the normalization is folded completely. Otherwise,
/// with `moments`, the convolution computes the batch moments of its result. Runs after fuse_conv_pool and
/// before backward().
void fuse_norm(ir::Graph& graph, NormFusion how);

/// Options of fuse_masks.
struct MaskFusion {
  bool in_conv = false;    ///< true: conv2d_grad_input applies masks to its result
  bool in_matmul = false;  ///< true: also in 1x1 convolutions, which then cannot run in a BLAS library
};
/// Lets batch norms with relu store a mask (norm/norm.h) of their 16-bit result, which their gradients read
/// instead of the result. If a batch norm's gradient is the only reader of its dy, the convolution that
/// computes dy applies the mask (MaskFusion), and dy is also the gradient of the residual. For GPUs; runs
/// after fuse_sums().
void fuse_masks(ir::Graph& graph, MaskFusion how);

/// Computes the low-rank products of LoRA adapters that read the same 16-bit input together: one matmul by
/// their stacked matrices A, and low_rank_up. Runs after fuse_epilogues and before backward().
void fuse_adapters(ir::Graph& graph);

/// Fuses chains of elementwise ops into fused_elementwise nodes, if the values in between have one reader.
/// Runs after backward().
void fuse_elementwise(ir::Graph& graph);

}  // namespace hearth::passes
