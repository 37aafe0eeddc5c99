#pragma once

#include "passes/train_graph.h"

namespace hearth::passes {

struct AllReduceOptions {
  /// Values of at least so many bytes travel alone, in place; smaller ones together, in buckets of about so
  /// many.
  int64_t bucket_bytes = int64_t{1} << 20;
  /// A GPU's values go through host memory.
  bool through_host = false;
  /// They stay there, and the GPUs reach one another (Capability::device_memory).
  bool on_gpu = false;
  int rank = 0;  ///< of the worker whose graph it is
};

/// Lets every node after a value of `train.shared` read its sum over the workers; such nodes come last, and
/// after them what spreads `train.spread`. The
/// sum of a bucket begins where the last of its values is made, beside the nodes that follow (Li and others,
/// VLDB 2020). Buckets and their order follow from `shared` alone, so that workers whose micro-batches have
/// other shapes meet.
void all_reduce(TrainGraph& train, const AllReduceOptions& options);

}  // namespace hearth::passes
