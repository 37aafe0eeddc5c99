#include "cost/seconds.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cost/expectation.h"
#include "cost/kernel_share.h"
#include "ir/kernel_group.h"
#include "ir/op_def.h"

namespace hearth::cost {
namespace {

/// True if the node computes at the 16-bit rate: the first input that it does not overwrite has a 16-bit
/// dtype.
bool is_half(const ir::Graph& graph, const ir::Node& node) {
  size_t first = 0;
  while (first < node.inputs.size() && ir::overwrites(node, first)) ++first;
  const ir::ValueId input = first < node.inputs.size() ? node.inputs[first] : ir::kNone;
  return input != ir::kNone && dtype_bytes(graph.type(input).dtype) == 2;
}

/// Returns the factor by which a kernel is slower than the device's matmul rate: because of the kernel's
/// efficiency (kernel_share), and because compute units are idle in the last round if it has fewer blocks
/// than units.
double slowdown(const ir::Cost& cost, bool half, const Device& device) {
  const double share = kernel_share(cost, half, device.vendor);
  if (cost.blocks == 0 || device.vendor == Vendor::none) return 1 / share;
  const double rounds = std::ceil(cost.blocks / device.units);
  return rounds * device.units / cost.blocks / share;
}

/// Seconds of a node's arithmetic and of its memory traffic, and the kind of its kernel.
struct Parts {
  double computing = 0, moving = 0;
  ir::KernelKind kernel = ir::KernelKind::elementwise;

  double seconds(const Device& device) const {
    // With overlap, the longer of the two determines the time (roofline model).
    return device.overlaps ? std::max(computing, moving) : computing + moving;
  }
  TimeRange expected(const Device& device) const {
    const Expectation range = expectation_of(kernel, moving >= computing, device.vendor);
    return {range.low * seconds(device), range.high * seconds(device)};
  }
};
Parts parts_of(const ir::Graph& graph, const ir::Node& node, const Device& device) {
  const ir::Cost cost = ir::cost_of(graph, node);
  if (node.op->transfer != ir::Transfer::none) return {.moving = cost.bytes / device.link_bytes_per_second};
  const bool half = is_half(graph, node);
  const double rate = half ? device.half_flops_per_second : device.full_flops_per_second;
  const OpRates rates = op_rates(node.op->name, device.vendor);
  const double relative = cost.kernel == ir::KernelKind::conv ? rates.conv : 1;
  return {.computing = slowdown(cost, half, device) * cost.flops / (rate * relative),
          .moving = cost.bytes / (device.bytes_per_second * rates.bandwidth),
          .kernel = cost.kernel};
}

}  // namespace

double seconds_of(const ir::Graph& graph, const ir::Node& node, const Device& device) {
  return parts_of(graph, node, device).seconds(device);
}

void TimeRange::add(const TimeRange& other, double times) {
  low += times * other.low;
  high += times * other.high;
}

TimeRange expected_seconds(const ir::Graph& graph, const ir::Node& node, const Device& device) {
  const Parts parts = parts_of(graph, node, device);
  const double seconds = parts.seconds(device);
  return node.op->transfer == ir::Transfer::none ? parts.expected(device) : TimeRange{seconds, seconds};
}

StepTime simulate(const ir::Graph& graph, const Device& device) {
  std::vector<double> ready(graph.values.size(), 0);
  double compute_done = 0;
  double in_done = 0;
  double out_done = 0;
  double in_seconds = 0;
  double out_seconds = 0;
  StepTime time;
  TimeRange computing;
  const std::vector<bool> launches = ir::kernel_starts(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    const Parts parts = parts_of(graph, node, device);
    const double seconds = parts.seconds(device) + (launches[i] ? device.launch_seconds : 0);
    const bool computes = node.op->transfer == ir::Transfer::none;
    const bool comes_in = node.op->transfer == ir::Transfer::fetch;
    double& queue = computes ? compute_done : comes_in ? in_done : out_done;
    double start = std::max(queue, compute_done);
    for (const ir::ValueId in : node.inputs) {
      if (in != ir::kNone) start = std::max(start, ready[static_cast<size_t>(in)]);
    }
    queue = start + seconds;
    (computes ? time.compute_seconds : comes_in ? in_seconds : out_seconds) += seconds;
    if (computes) computing.add(parts.expected(device), 1);
    for (const ir::ValueId out : node.outputs) ready[static_cast<size_t>(out)] = queue;
  }
  time.seconds = std::max({compute_done, in_done, out_done});
  time.link_seconds = std::max(in_seconds, out_seconds);
  if (time.compute_seconds > 0) time.expected.add(computing, time.seconds / time.compute_seconds);
  return time;
}

}  // namespace hearth::cost
