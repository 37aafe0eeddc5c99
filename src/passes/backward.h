#pragma once

#include "passes/train_graph.h"

namespace hearth::passes {

/// Appends the gradient of every parameter that the losses depend on, by reverse-mode differentiation: visits
/// the nodes in reverse order and applies OpDef::vjp of each. Throws UserError with the name of a node whose
/// op has no gradient.
void backward(TrainGraph& train);

}  // namespace hearth::passes
