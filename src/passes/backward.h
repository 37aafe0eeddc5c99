#pragma once

#include "passes/train_graph.h"

namespace hearth::passes {

/// Appends the gradient of every parameter that `losses` depends on, by one reverse walk over the nodes;
/// rules come from OpDef::vjp. UserError names a node whose op has no gradient. See tests/passes.
void backward(TrainGraph& train);

}  // namespace hearth::passes
