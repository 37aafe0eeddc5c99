#include "ir/op_def.h"

namespace hearth::ir {

NodeTypes::NodeTypes(const Graph& graph, const Node& node) : in(graph.input_types(node)) {
  out.reserve(node.outputs.size());
  for (const ValueId id : node.outputs) out.push_back(graph.type(id));
}

Cost cost_of(const Graph& graph, const Node& node) {
  const NodeTypes types(graph, node);
  if (node.op->cost != nullptr) return node.op->cost(types.view(node));
  Cost cost;
  for (const auto& side : {types.in, types.out}) {
    for (const Type& type : side) cost.bytes += static_cast<double>(type.num_bytes());
  }
  return cost;
}

}  // namespace hearth::ir
