#pragma once

#include "ir/graph.h"

namespace hearth::passes {

/// Folds bias_add, add (residual), relu and silu into the matmul, convolution or batch norm that feeds them,
/// where nothing else reads the values between. Runs before `backward`, which differentiates the fused forms.
void fuse_epilogues(ir::Graph& graph);

/// Turns convolution + relu + 2x2 max-pool over an input image into one op that never stores the full
/// activation. Runs after fuse_epilogues, before `backward`.
void fuse_conv_pool(ir::Graph& graph);

struct NormFusion {
  bool moments = false;
  bool gradients = false;  ///< of what depends on parameters
};
/// Lets a convolution do what batch normalization after it needs: all of it where the statistics are given
/// and nothing else reads the convolution's result, unless `gradients` go through them; with `moments`, the
/// moments of its result in training. Runs after fuse_conv_pool, before `backward`.
void fuse_norm(ir::Graph& graph, NormFusion how);

/// Turns chains of elementwise ops whose intermediate results have one reader into fused_elementwise nodes.
/// Runs after `backward`.
void fuse_elementwise(ir::Graph& graph);

}  // namespace hearth::passes
