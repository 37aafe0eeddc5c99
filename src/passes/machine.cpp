#include "passes/machine.h"

#include <algorithm>
#include <vector>

#include "ir/op_def.h"

namespace hearth::passes {

Machine radeon(DType precision) {
  return {.flops_per_second = precision == DType::f32 ? 20e12 : 75e12,
          .bytes_per_second = 680e9,
          .link_bytes_per_second = 24e9};
}

double cost_seconds(const ir::Graph& graph, const ir::Node& node, const Machine& machine) {
  const ir::Cost cost = ir::cost_of(graph, node);
  if (node.op->transfer != ir::Transfer::none) return cost.bytes / machine.link_bytes_per_second;
  return cost.flops / machine.flops_per_second + cost.bytes / machine.bytes_per_second;
}

StepTime simulate(const ir::Graph& graph, const Machine& machine) {
  std::vector<double> ready(graph.values.size(), 0);
  double compute_done = 0;
  double in_done = 0;
  double out_done = 0;
  double in_seconds = 0;
  double out_seconds = 0;
  StepTime time;
  for (const ir::Node& node : graph.nodes) {
    const double seconds = cost_seconds(graph, node, machine);
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

}  // namespace hearth::passes
