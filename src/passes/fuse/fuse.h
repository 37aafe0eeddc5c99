#pragma once

#include "ir/graph.h"

namespace hearth::passes {

/// Folds bias_add, add (residual), relu and silu into the matmul, convolution or batch norm before them, if
/// nothing else reads the intermediate values. Runs before `backward`, which differentiates the fused ops.
void fuse_epilogues(ir::Graph& graph);

/// Fuses convolution + relu + 2x2 max-pool over an input image into one op that never stores the full
/// activation. Runs after fuse_epilogues and before `backward`.
void fuse_conv_pool(ir::Graph& graph);

/// Options of fuse_norm.
struct NormFusion {
  /// True if convolutions compute the moments of their results.
  bool moments = false;
  bool gradients = false;  ///< true if the graph will be differentiated
};
/// Fuses batch normalization into the convolution before it. With given statistics all of it is folded, if
/// nothing else reads the convolution's result and no gradients flow through it. With `moments`, the
/// convolution computes the batch moments of its result in training. Runs after fuse_conv_pool and before
/// `backward`.
void fuse_norm(ir::Graph& graph, NormFusion how);

/// Fuses chains of elementwise ops whose intermediate results have one reader into fused_elementwise nodes.
/// Runs after `backward`.
void fuse_elementwise(ir::Graph& graph);

}  // namespace hearth::passes
