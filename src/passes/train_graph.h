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

/// An f32 value to be summed over all workers: every later reader reads the sum, on all workers or on worker
/// `root` only.
struct Shared {
  ir::ValueId value = ir::kNone;
  int root = -1;
  DType wire = DType::f32;  ///< dtype that is sent, for sums on all workers
  /// Order of communication: values of later stages may depend on sums of earlier ones.
  int stage = 0;
};

/// A weight, or its updated version, to be copied from worker `root` to all workers at the end.
struct Spread {
  ir::ValueId value = ir::kNone;
  int root = 0;
};

/// A graph during the passes, with the values that passes and the trainer need to find.
struct TrainGraph {
  ir::Graph graph;
  /// Per-sample losses, f32 [batch], which `backward` differentiates.
  ir::ValueId losses = ir::kNone;
  /// Cotangent of every element of `losses`, a scalar: loss scale / number of samples of the full batch.
  ir::ValueId loss_weight = ir::kNone;
  std::vector<Gradient> gradients;
  /// Values to all-reduce, approximately in the order they are computed.
  std::vector<Shared> shared;
  std::vector<Spread> spread;
};

}  // namespace hearth::passes
