#pragma once

#include "passes/train_graph.h"

namespace hearth::passes {

/// Appends the gradient of every parameter that `losses` depends on, by one reverse walk over the nodes
/// (reverse mode differentiation) with the rules in OpDef::vjp. Throws UserError naming a node whose op has
/// no gradient.
void backward(TrainGraph& train);

}  // namespace hearth::passes
