#include "ir/kernel_group.h"

#include <algorithm>
#include <set>

#include "ir/op_def.h"

namespace hearth::ir {
namespace {

/// True if the inputs that the node overwrites are all stored on the device, not fetched from host memory.
/// Running nodes with fetched inputs as one kernel would keep all of their copies on the device at once.
bool overwrites_resident_inputs(const Graph& graph, const Node& node) {
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const ValueId in = node.inputs[k];
    if (in != kNone && overwrites(node, k) && graph.value(in).producer != kNone) return false;
  }
  return true;
}

}  // namespace

bool overwrites(const Node& node, size_t index) {
  return std::ranges::find(node.op->writes, static_cast<int>(index)) != node.op->writes.end();
}

bool can_share_kernel(const Graph& graph, const Node& a, const Node& b) {
  if (a.op != b.op || !a.op->gpu_many || a.attrs != b.attrs || a.inputs.size() != b.inputs.size())
    return false;
  if (!overwrites_resident_inputs(graph, a) || !overwrites_resident_inputs(graph, b)) return false;
  for (size_t k = 0; k < a.inputs.size(); ++k) {
    const ValueId own = a.inputs[k], other = b.inputs[k];
    if ((own == kNone) != (other == kNone)) return false;
    if (own == kNone) continue;
    const Type &type = graph.type(own), &others = graph.type(other);
    if (type.dtype != others.dtype) return false;
    const bool is_scalar = type.shape.rank() == 0 || others.shape.rank() == 0;
    if (is_scalar && own != other) return false;
  }
  return true;
}

size_t num_nodes_in_kernel(const Graph& graph, size_t first) {
  std::set<ValueId> made, read, overwritten;
  size_t count = 0;
  for (size_t i = first;
       i < graph.nodes.size() && can_share_kernel(graph, graph.nodes[first], graph.nodes[i]); ++i) {
    const Node& node = graph.nodes[i];
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId in = node.inputs[k];
      if (in == kNone) continue;
      const bool writes = overwrites(node, k) ||
                          (node.op->may_work_in_place && graph.type(in) == graph.type(node.outputs[0]));
      if (made.contains(in) || overwritten.contains(in) || (writes && read.contains(in))) return count;
    }
    for (size_t k = 0; k < node.inputs.size(); ++k)
      (overwrites(node, k) ? overwritten : read).insert(node.inputs[k]);
    made.insert(node.outputs.begin(), node.outputs.end());
    ++count;
  }
  return std::max<size_t>(1, count);
}

std::vector<bool> kernel_starts(const Graph& graph) {
  std::vector<bool> starts(graph.nodes.size());
  size_t together = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op->is_view) continue;
    starts[i] = together == 0;
    if (starts[i]) together = num_nodes_in_kernel(graph, i);
    --together;
  }
  return starts;
}

}  // namespace hearth::ir
