#pragma once

#include <span>
#include <vector>

#include "ops/gpu_support.h"

/// Multi-tensor launches: one kernel launch serves many tensors, because a model has hundreds of weights and
/// most are small.
namespace hearth::ops {

/// Bytes of kernel parameters used for the table of tensors. Every GPU allows 4096 bytes; the rest is for
/// other parameters.
inline constexpr size_t kTableBytes = 3584;

/// Table of the tensors of one launch, passed by value as a kernel parameter. Each thread block processes one
/// range of `run` elements of one tensor.
template <typename Tensor>
struct ManyTensors {
  static constexpr int kMaxTensors = static_cast<int>((kTableBytes - 16) / (sizeof(Tensor) + 12));
  int64_t counts[kMaxTensors];  ///< number of elements of each tensor
  Tensor tensors[kMaxTensors];
  int first_blocks[kMaxTensors];
  int num_tensors;
  int num_blocks;
  int run;  ///< elements per block
};

/// Range [begin, end) of the elements of a tensor that one block processes.
struct BlockRun {
  int tensor;
  int64_t begin;
  int64_t end;
};
/// Returns this block's range, by binary search over first_blocks.
template <typename Tensor>
RT_DEVICE BlockRun run_of_block(const ManyTensors<Tensor>& all) {
  const int block = static_cast<int>(blockIdx.x);
  int low = 0, high = all.num_tensors;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (all.first_blocks[middle] <= block ? low : high) = middle;
  }
  const int64_t begin = static_cast<int64_t>(block - all.first_blocks[low]) * all.run;
  const int64_t end = begin + all.run;
  return {low, begin, end < all.counts[low] ? end : all.counts[low]};
}

/// Returns the number of blocks for a tensor of `count` elements.
inline int64_t num_runs(int64_t count, int run) { return ceil_div(count, run); }

/// Distributes the tensors tensor_of(i) of counts[i] elements over as few tables as possible, in order, and
/// calls launch(table) for each table.
template <typename Tensor, typename TensorOf, typename Launch>
void for_many_tensors(std::span<const int64_t> counts, int run, TensorOf tensor_of, Launch launch) {
  ManyTensors<Tensor> all = {};
  all.run = run;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    all.counts[all.num_tensors] = counts[i];
    all.tensors[all.num_tensors] = tensor_of(i);
    all.first_blocks[all.num_tensors] = all.num_blocks;
    all.num_blocks += static_cast<int>(num_runs(counts[i], run));
    if (++all.num_tensors < ManyTensors<Tensor>::kMaxTensors) continue;
    launch(all);
    all.num_tensors = all.num_blocks = 0;
  }
  if (all.num_tensors > 0) launch(all);
}

/// Returns the number of elements of input 0 of each node.
inline std::vector<int64_t> counts_of(std::span<const ir::NodeView> nodes) {
  std::vector<int64_t> counts;
  for (const ir::NodeView& node : nodes) counts.push_back(node.in_type(0).shape.num_elements());
  return counts;
}

/// Returns the buffers of node `i` of `num_nodes` nodes that share one launch.
inline ir::KernelArgs args_of(const ir::KernelArgs& args, size_t num_nodes, size_t i) {
  const size_t num_in = args.in.size() / num_nodes, num_out = args.out.size() / num_nodes;
  ir::KernelArgs local = args;
  local.in = args.in.subspan(i * num_in, num_in);
  local.out = args.out.subspan(i * num_out, num_out);
  return local;
}

}  // namespace hearth::ops
