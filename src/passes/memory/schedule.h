#pragma once

#include "passes/memory/storage.h"

namespace hearth::passes {

/// Reorders nodes (dependencies and in-place writes kept) to lower the peak of live bytes: tries the order as
/// built and a greedy one that runs first what frees most, and keeps the better. Deterministic.
void schedule(ir::Graph& graph, const WorkspaceOf& workspace_of);

}  // namespace hearth::passes
