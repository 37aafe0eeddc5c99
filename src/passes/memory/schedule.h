#pragma once

#include "passes/memory/storage.h"

namespace hearth::passes {

/// Reorders nodes to lower the peak of live bytes, keeping dependencies and in-place writes. Compares the
/// original order with a greedy one, which first runs the nodes that free the most bytes, and keeps the
/// better. Deterministic.
void schedule(ir::Graph& graph, const WorkspaceOf& workspace_of);

}  // namespace hearth::passes
