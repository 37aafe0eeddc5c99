#pragma once

#include "base/choices.h"
#include "passes/train_graph.h"

namespace hearth::passes {

struct CompressOptions {
  Compress way = Compress::none;
  /// PowerSGD: columns of a matrix's factors.
  int64_t rank = 4;
  /// PowerSGD: what it makes fewer than so many times smaller is sent whole.
  double least_ratio = 10;
};

/// Lets workers send less of each gradient in `train.shared`, f32: what is left out is added to the next one
/// (error feedback). bf16: the gradient rounded. PowerSGD (arXiv 1905.13727): of a matrix M [N, M] the sums
/// of P = M Q and of M^T P with P orthogonalized, whose product stands for the sum of M. What is not finite
/// stays in the states, which are the weight's `error` and, of PowerSGD, its `factor`: Q of the next step.
void compress(TrainGraph& train, const CompressOptions& options);

}  // namespace hearth::passes
