#pragma once

#include "passes/memory/storage.h"

namespace hearth::passes {

/// Moves nodes that one GPU kernel can execute together (OpDef::gpu_many) to the first of them, if their
/// inputs are available there. The optimizer updates of all weights then need one launch.
void group_updates(ir::Graph& graph);

/// Moves the casts of weights (and stack_rows of weights) to the first of them, so that a GPU does them in
/// one launch; keeps the order if the peak would rise. Only the first cast of a weight moves: later ones
/// recompute it.
void group_casts(ir::Graph& graph, const WorkspaceOf& workspace_of);

/// Moves the nodes that take the gradients of adapters apart (unstack_rows) to the last of them, if nothing
/// reads a gradient before; keeps the order if the peak would rise.
void group_unstacking(ir::Graph& graph, const WorkspaceOf& workspace_of);

}  // namespace hearth::passes
