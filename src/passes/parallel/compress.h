#pragma once

#include "base/choices.h"
#include "passes/train_graph.h"

namespace hearth::passes {

/// Options of compress().
struct CompressOptions {
  /// Compression method.
  Compress way = Compress::none;
  /// For PowerSGD: number of columns of the two factors of a gradient.
  int64_t rank = 4;
  /// For PowerSGD: min compression ratio. A gradient whose factors would save less is sent uncompressed.
  double min_ratio = 10;
};

/// Compresses the f32 gradients in `train.shared` before they are all-reduced. The error that this causes is
/// added to the next step's gradient (error feedback). bf16: sends the gradient rounded to bf16. fp8: sends
/// it rounded to E5M2 times a power of two for each weight. PowerSGD (Vogels et al., arXiv 1905.13727): for a
/// gradient matrix M and a matrix Q, all-reduces P = M Q, orthogonalizes it, and all-reduces M^T P; the
/// product of these two approximates the sum of M over all workers. Non-finite gradients make the states
/// non-finite: `error` of the weight and, for PowerSGD, `factor` (the next step's Q).
void compress(TrainGraph& train, const CompressOptions& options);

}  // namespace hearth::passes
