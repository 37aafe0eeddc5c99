#pragma once

#include "ir/graph.h"

namespace hearth::passes {

/// Moves nodes that one kernel of a GPU may take (OpDef::gpu_many) next to the first of their kind, where
/// everything they need is there by then: the updates of all weights become one launch.
void group_updates(ir::Graph& graph);

}  // namespace hearth::passes
