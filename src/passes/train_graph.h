#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace hearth::passes {

/// A trainable weight and its gradient, as values of the graph.
struct Gradient {
  ir::ValueId parameter = ir::kNone;
  ir::ValueId gradient = ir::kNone;
};

/// An f32 value that is summed over all workers. Later nodes read the sum: on all workers, or if `root` is
/// not negative, on that worker only.
struct Shared {
  ir::ValueId value = ir::kNone;
  int root = -1;
  DType wire = DType::f32;  ///< dtype in which the value is sent; for sums on all workers only
  /// Sums with a higher stage are computed later, because their values may depend on sums of lower stages.
  int stage = 0;
};

/// A weight, or its updated value, that worker `root` sends to all workers at the end of the graph.
struct Spread {
  ir::ValueId value = ir::kNone;
  int root = 0;
};

/// A graph with the values that passes and the trainer need to identify.
struct TrainGraph {
  ir::Graph graph;
  /// Losses of the samples, f32 [batch], which backward() differentiates.
  ir::ValueId losses = ir::kNone;
  /// Scalar that weights every element of `losses` (their cotangent): loss scale / number of samples in the
  /// full batch.
  ir::ValueId loss_weight = ir::kNone;
  std::vector<Gradient> gradients;
  /// Values to all-reduce, roughly in the order in which they are computed.
  std::vector<Shared> shared;
  std::vector<Spread> spread;
};

}  // namespace hearth::passes
