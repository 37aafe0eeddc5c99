#pragma once

#include "passes/memory/storage.h"

namespace hearth::passes {

/// Reorders nodes, keeping dependencies and in-place writes, to lower the peak of live bytes: compares the
/// original order with a greedy one that first runs nodes that free the most bytes, and keeps the better.
/// Deterministic.
void schedule(ir::Graph& graph, const WorkspaceOf& workspace_of);

}  // namespace hearth::passes
