#pragma once

#include "passes/memory/offload.h"

namespace hearth::passes {

/// Result of recompute().
struct RecomputeResult {
  int64_t peak_before_bytes = 0;
  int64_t peak_after_bytes = 0;
  int num_recomputed = 0;
  int num_stashed = 0;  ///< number of values offloaded to host memory
  int num_smaller = 0;  ///< number of nodes that use a smaller workspace
  double extra_flops = 0;
  bool fits = true;
};

/// Activation checkpointing within a memory budget of `budget_bytes` (0: no budget). While the peak is above
/// it, drops after the forward pass the value that frees the most bytes per second of recompute, and
/// recomputes it before the backward pass reads it. The reported bytes are peaks of the resulting graph, not
/// estimates. Greedy form of Checkmate's problem (Jain et al., MLSys 2020).
///
/// If the node at the peak can use a smaller workspace (OpDef::smaller), this is an alternative to recompute.
/// For the LM head, it determines for how many rows the logits are stored at a time.
///
/// With `offload.activations`, a value is offloaded to host memory instead if that takes less time on
/// `device` according to the cost model. A copy costs little while it overlaps with computing.
RecomputeResult recompute(ir::Graph& graph, int64_t budget_bytes, const WorkspaceOf& workspace_of,
                          const cost::Device& device = {}, const OffloadOptions& offload = {});

}  // namespace hearth::passes
