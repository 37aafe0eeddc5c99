#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace hearth::passes {

/// A trainable weight and the value that holds its gradient.
struct Gradient {
  ir::ValueId parameter = ir::kNone;
  ir::ValueId gradient = ir::kNone;
};

/// A graph on its way through the passes, with the values that passes and the trainer must find again.
struct TrainGraph {
  ir::Graph graph;
  /// Per-sample losses, f32 [batch]: what `backward` differentiates.
  ir::ValueId losses = ir::kNone;
  /// Cotangent of every element of `losses`, a scalar: loss scale / samples of the whole batch.
  ir::ValueId loss_weight = ir::kNone;
  std::vector<Gradient> gradients;
  /// Values, f32, of which everything behind them is to read the sum over all workers, in
  /// about the order they are made.
  std::vector<ir::ValueId> shared;
};

}  // namespace hearth::passes
