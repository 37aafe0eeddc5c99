#pragma once

#include "passes/memory/offload.h"

namespace hearth::passes {

/// What recomputation did.
struct RecomputeResult {
  int64_t peak_before_bytes = 0;
  int64_t peak_after_bytes = 0;
  int num_recomputed = 0;
  int num_stashed = 0;  ///< values that wait in host memory
  int num_smaller = 0;  ///< nodes that work in less workspace
  double extra_flops = 0;
  bool fits = true;
};

/// Activation checkpointing under a byte budget: while the simulated peak is above `budget_bytes`, the value
/// that buys most bytes per second of extra work is dropped after the forward pass and made again before the
/// backward pass reads it. The figures are simulated peaks of the result, never estimates. 0 = no budget.
/// Greedy form of Checkmate's problem (Jain et al., MLSys 2020).
///
/// Where the peak stands on a node whose op can do with less workspace (OpDef::smaller), that is weighed
/// alike: it says how many rows of logits exist at a time.
///
/// With `offload.activations`, a value may also go to the host and come back, where that is cheaper by
/// `device`: copies count little while they fit beside the computing.
RecomputeResult recompute(ir::Graph& graph, int64_t budget_bytes, const WorkspaceOf& workspace_of,
                          const cost::Device& device = {}, const OffloadOptions& offload = {});

}  // namespace hearth::passes
