#pragma once

#include "passes/train_graph.h"

namespace hearth::passes {

/// Options of all_reduce().
struct AllReduceOptions {
  /// Values of at least this size are reduced alone and in place. Smaller values are collected in buckets of
  /// about this size.
  int64_t bucket_bytes = int64_t{1} << 20;
  /// True if a GPU's values are staged through host memory.
  bool through_host = false;
  /// True if values stay on the GPUs, which communicate directly (Capability::device_memory).
  bool on_gpu = false;
  int rank = 0;  ///< rank of the worker whose graph this is
};

/// Inserts all-reduces (or reduces to one root) of the values in `train.shared`, and makes later nodes read
/// the results. These nodes are moved to the end; after them come broadcasts of the values in `train.spread`.
/// The all-reduce of a bucket starts when its last value is computed, and overlaps with the nodes that follow
/// (Li et al., PyTorch Distributed, VLDB 2020). Buckets and their order depend on `shared` only, so that
/// workers whose micro-batches have different shapes issue the same collectives.
void all_reduce(TrainGraph& train, const AllReduceOptions& options);

}  // namespace hearth::passes
