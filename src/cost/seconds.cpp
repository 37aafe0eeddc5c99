#include "cost/seconds.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ir/kernel_group.h"
#include "ir/op_def.h"

namespace hearth::cost {
namespace {

/// Rates follow what a node reads: what it multiplies.
double flops_per_second(const ir::Graph& graph, const ir::Node& node, const Device& device) {
  const ir::ValueId first = node.inputs.empty() ? ir::kNone : node.inputs[0];
  const bool half = first != ir::kNone && dtype_bytes(graph.type(first).dtype) == 2;
  return half ? device.half_flops_per_second : device.full_flops_per_second;
}

/// By how much kernels of the vendor are slower than the rate: by what they reach when all units work, and by
/// units without a block in the last round.
double slowdown(const ir::Cost& cost, const Device& device) {
  if (device.vendor == Vendor::none) return 1;
  const double share = device.vendor == Vendor::amd ? cost.share.amd : cost.share.nvidia;
  if (cost.blocks == 0) return 1 / share;
  const double rounds = std::ceil(cost.blocks / device.units);
  return rounds * device.units / cost.blocks / share;
}

}  // namespace

double seconds_of(const ir::Graph& graph, const ir::Node& node, const Device& device) {
  const ir::Cost cost = ir::cost_of(graph, node);
  if (node.op->transfer != ir::Transfer::none) return cost.bytes / device.link_bytes_per_second;
  const double computing = slowdown(cost, device) * cost.flops / flops_per_second(graph, node, device);
  const double moving = cost.bytes / device.bytes_per_second;
  // A kernel that does both at once takes as long as the longer one (Williams, Waterman, Patterson 2009).
  return device.overlaps ? std::max(computing, moving) : computing + moving;
}

StepTime simulate(const ir::Graph& graph, const Device& device) {
  std::vector<double> ready(graph.values.size(), 0);
  double compute_done = 0;
  double in_done = 0;
  double out_done = 0;
  double in_seconds = 0;
  double out_seconds = 0;
  StepTime time;
  const std::vector<bool> launches = ir::kernel_starts(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    const double seconds = seconds_of(graph, node, device) + (launches[i] ? device.launch_seconds : 0);
    const bool computes = node.op->transfer == ir::Transfer::none;
    const bool comes_in = node.op->transfer == ir::Transfer::fetch;
    double& queue = computes ? compute_done : comes_in ? in_done : out_done;
    double start = std::max(queue, compute_done);
    for (const ir::ValueId in : node.inputs) {
      if (in != ir::kNone) start = std::max(start, ready[static_cast<size_t>(in)]);
    }
    queue = start + seconds;
    (computes ? time.compute_seconds : comes_in ? in_seconds : out_seconds) += seconds;
    for (const ir::ValueId out : node.outputs) ready[static_cast<size_t>(out)] = queue;
  }
  time.seconds = std::max({compute_done, in_done, out_done});
  time.link_seconds = std::max(in_seconds, out_seconds);
  return time;
}

}  // namespace hearth::cost
