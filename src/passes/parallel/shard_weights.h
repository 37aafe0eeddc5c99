#pragma once

#include <map>
#include <string>

#include "passes/train_graph.h"

namespace hearth::passes {

/// Options of shard_weights().
struct ShardOptions {
  /// Owner rank of each weight by name; null: weights are not sharded.
  const std::map<std::string, int>* owners = nullptr;
  int rank = 0;               ///< rank of the worker whose graph this is
  bool through_host = false;  ///< true if a GPU's values are staged through host memory
  /// Prefetch distance: a weight is broadcast as soon as the weight this many uses before it is read.
  size_t num_ahead = 1;
};

/// Shards weights: each is stored on its owner only (FSDP, arXiv 2304.11277; ZeRO stage 3, arXiv 1910.02054)
/// and has ir::Role::remote elsewhere. The owner broadcasts it before its first reader of the forward pass
/// and again before that of the backward pass; in between its bytes are free, as are those of values computed
/// from it alone. If a pass reads only a lower-precision copy of the weight, that copy is broadcast.
///
/// The broadcasts are placed at the nodes that read weights, and their order follows from those nodes alone:
/// workers whose graphs read weights in the same order issue the same collectives, whichever weights each of
/// them owns.
void shard_weights(TrainGraph& train, const ShardOptions& options);

}  // namespace hearth::passes
