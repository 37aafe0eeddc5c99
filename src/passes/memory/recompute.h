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

/// Activation checkpointing under a byte budget (0: no budget): while the peak is above `budget_bytes`, drops
/// after the forward pass the value that frees the most bytes per second of recompute, and recomputes it
/// before the backward pass reads it. The reported bytes are peaks of the resulting graph, never estimates.
/// Greedy form of Checkmate's problem (Jain et al., MLSys 2020).
///
/// If the peak is at a node whose op can run with a smaller workspace (OpDef::smaller), this competes with
/// recompute; for the head it sets how many rows of logits are held.
///
/// With `offload.activations`, a value may be offloaded to the host instead if `device` predicts that to be
/// cheaper: copies cost little while they overlap with computing.
RecomputeResult recompute(ir::Graph& graph, int64_t budget_bytes, const WorkspaceOf& workspace_of,
                          const cost::Device& device = {}, const OffloadOptions& offload = {});

}  // namespace hearth::passes
