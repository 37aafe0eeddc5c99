#pragma once

#include "engine/plan.h"

namespace hearth::engine {

/// Positions in the outputs of a graph. From kFirstOther on: in training, the optimizer's or the gradients;
/// in evaluation, the objective's outputs. Without losses, the objective's outputs begin at 0.
enum Output : size_t { kLossSum = 0, kFirstOther = 1 };

/// Builds the graph of the objective for one batch shape, before any pass: the forward pass, the loss, and
/// its weight. Adds the model's tensors, inputs and running statistics to `plan`. UserError if the options
/// name modules that the model does not have.
passes::TrainGraph build_graph(Plan& plan, Purpose purpose, BatchShape shape);

}  // namespace hearth::engine
