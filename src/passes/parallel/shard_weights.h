#pragma once

#include <map>
#include <string>

#include "passes/train_graph.h"

namespace hearth::passes {

/// Options of shard_weights().
struct ShardOptions {
  /// For each weight, by name, the rank of the worker that stores it (its owner). Null: weights are not
  /// sharded.
  const std::map<std::string, int>* owners = nullptr;
  int rank = 0;               ///< rank of the worker whose graph this is
  bool through_host = false;  ///< true if a GPU's values are staged through host memory
  /// Prefetch distance in uses of weights: a broadcast is placed before the first reader of the use that is
  /// `num_ahead` uses earlier.
  size_t num_ahead = 1;
};

/// Shards weights (FSDP, arXiv 2304.11277; ZeRO stage 3, arXiv 1910.02054): each weight is stored only by its
/// owner, and has ir::Role::remote on the other workers. The owner broadcasts the weight before its first
/// reader in the forward pass, and again in the backward pass. In between, its bytes are free, and those of
/// values computed from it alone. If a pass reads only a copy in lower precision, that copy is broadcast.
///
/// The positions and order of the broadcasts depend only on the nodes that read weights: workers whose graphs
/// read weights in the same order issue the same collectives, whichever weights each of them owns.
void shard_weights(TrainGraph& train, const ShardOptions& options);

}  // namespace hearth::passes
