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

/// An f32 value of which everything after it is to read the sum over all workers: of each of them, or of
/// worker `root` alone, where that is one.
struct Shared {
  ir::ValueId value = ir::kNone;
  int root = -1;
  DType wire = DType::f32;  ///< what travels, of values for all workers
  /// Later ones, which stand after the others, may be made of sums of earlier ones.
  int stage = 0;
};

/// A weight, or its new version, that in the end is to be on every worker what it is on worker `root`.
struct Spread {
  ir::ValueId value = ir::kNone;
  int root = 0;
};

/// A graph on its way through the passes, with the values that passes and the trainer must find again.
struct TrainGraph {
  ir::Graph graph;
  /// Per-sample losses, f32 [batch]: what `backward` differentiates.
  ir::ValueId losses = ir::kNone;
  /// Cotangent of every element of `losses`, a scalar: loss scale / samples of the whole batch.
  ir::ValueId loss_weight = ir::kNone;
  std::vector<Gradient> gradients;
  /// In about the order they are made.
  std::vector<Shared> shared;
  std::vector<Spread> spread;
};

}  // namespace hearth::passes
