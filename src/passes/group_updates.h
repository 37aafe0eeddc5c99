#pragma once

#include "ir/graph.h"

namespace hearth::passes {

/// Moves nodes that one GPU kernel can do together (OpDef::gpu_many) next to the first of their kind, if
/// their inputs are available there: the optimizer updates of all weights become one launch.
void group_updates(ir::Graph& graph);

}  // namespace hearth::passes
