#pragma once

#include "engine/plan.h"

namespace hearth::engine {

/// Indices of the outputs of a graph. Outputs from kFirstOther on are the objective's outputs in evaluation,
/// and values of the optimizer or gradients in training. Without a loss, the objective's outputs begin at 0.
enum Output : size_t { kLossSum = 0, kFirstOther = 1 };

/// Builds the graph of the objective for one batch shape, to which no pass has been applied yet: the forward
/// pass, the loss, and the factor of the loss. Adds the model's tensors, inputs and running statistics to
/// `plan`. Throws a UserError if the options name modules that the model does not have.
passes::TrainGraph build_graph(Plan& plan, Purpose purpose, BatchShape shape);

}  // namespace hearth::engine
