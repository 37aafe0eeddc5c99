#pragma once

#include "passes/train_graph.h"

namespace hearth::passes {

/// Options of all_reduce().
struct AllReduceOptions {
  /// Values of at least this size are reduced alone and in place; smaller ones share buckets of about this
  /// size.
  int64_t bucket_bytes = int64_t{1} << 20;
  /// True if a GPU's values are staged through host memory.
  bool through_host = false;
  /// True if values stay on the GPUs, which communicate directly (Capability::device_memory).
  bool on_gpu = false;
  int rank = 0;  ///< rank of the worker whose graph this is
};

/// Inserts all-reduces (or reduces to a root) of `train.shared` and redirects later readers to the results;
/// these readers are moved to the end, and broadcasts of `train.spread` follow them. The all-reduce of a
/// bucket starts when its last value is computed and overlaps with the following nodes (Li et al., PyTorch
/// Distributed, VLDB 2020). Buckets and their order depend on `shared` alone, so that workers whose
/// micro-batches have different shapes issue the same collectives.
void all_reduce(TrainGraph& train, const AllReduceOptions& options);

}  // namespace hearth::passes
