#pragma once

#include "passes/memory/storage.h"

namespace hearth::passes {

/// Moves nodes that one GPU kernel can execute together (OpDef::gpu_many) to the first of them, if their
/// inputs are available there. The optimizer updates of all weights then need one launch.
void group_updates(ir::Graph& graph);

/// Moves the casts of weights (and stack_rows of weights) to the first of them, so that a GPU does them in
/// one launch; keeps the order if peak memory would rise. Moves only the first cast of each weight: later
/// casts of the same weight recompute its copy to save memory.
void group_casts(ir::Graph& graph, const WorkspaceOf& workspace_of);

/// Moves unstack_rows nodes, which split the gradients of adapters, to the last of them, unless one of these
/// gradients is read earlier; keeps the order if peak memory would rise.
void group_unstacking(ir::Graph& graph, const WorkspaceOf& workspace_of);

}  // namespace hearth::passes
