#pragma once

#include "base/choices.h"
#include "passes/train_graph.h"

namespace hearth::passes {

/// Options of compress().
struct CompressOptions {
  /// Compression method.
  Compress way = Compress::none;
  /// PowerSGD: rank, the number of columns of a matrix's factors.
  int64_t rank = 4;
  /// PowerSGD: gradients that it would compress by less than this factor are sent uncompressed.
  double min_ratio = 10;
};

/// Compresses the f32 gradients in `train.shared` before they are all-reduced. The rounding or approximation
/// error is added to the next step's gradient (error feedback). bf16: sends the rounded gradient. PowerSGD
/// (Vogels et al., arXiv 1905.13727): all-reduces P = M Q of a matrix M [N, M], orthogonalizes it, and
/// all-reduces M^T P; their product approximates the sum of M. Non-finite values stay in the states: the
/// weight's `error` and, for PowerSGD, `factor`, the Q of the next step.
void compress(TrainGraph& train, const CompressOptions& options);

}  // namespace hearth::passes
