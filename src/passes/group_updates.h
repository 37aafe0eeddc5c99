#pragma once

#include "ir/graph.h"

namespace hearth::passes {

/// Moves nodes that one kernel of a GPU may take (OpDef::gpu_many) next to the first of their kind, where
/// everything they need is there by then: the updates of all weights become one launch.
void group_updates(ir::Graph& graph);

/// How many nodes from number `first` on one kernel may take: of one op and alike but for shapes, with the
/// same scalars, and none needs what another makes or overwrites. At least 1.
size_t num_together(const ir::Graph& graph, size_t first);

}  // namespace hearth::passes
