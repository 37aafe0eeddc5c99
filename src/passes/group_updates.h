#pragma once

#include "ir/graph.h"

namespace hearth::passes {

/// Moves nodes that one GPU kernel can execute together (OpDef::gpu_many) to the first of them, if their
/// inputs are available there. The optimizer updates of all weights then need one launch.
void group_updates(ir::Graph& graph);

}  // namespace hearth::passes
