#pragma once

#include <map>
#include <string>

#include "passes/train_graph.h"

namespace hearth::passes {

struct ShardOptions {
  /// By name of a weight, the worker that has it; null: every worker has all weights.
  const std::map<std::string, int>* owners = nullptr;
  int rank = 0;               ///< of the worker whose graph it is
  bool through_host = false;  ///< a GPU's values go through host memory
  /// A weight is on its way as soon as the one so many before it is read.
  size_t num_ahead = 1;
};

/// Lets every weight live on its owner alone (FSDP, arXiv 2304.11277; the third stage of ZeRO, 1910.02054):
/// elsewhere it becomes ir::Role::remote. All who do not have it receive it before its first reader of
/// the forward pass and once more before that of the backward pass; in between its bytes are free, also
/// those of what is made from a weight alone, on every worker. Where a pass reads nothing of a weight but its
/// copy in a lower precision, that copy travels.
///
/// What is sent and received stands where the nodes that read weights stand, and follows from their order
/// alone: workers whose graphs have those in one order meet, whichever weights each of them has.
void shard_weights(TrainGraph& train, const ShardOptions& options);

}  // namespace hearth::passes
