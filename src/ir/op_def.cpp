#include "ir/op_def.h"

namespace hearth::ir {

NodeTypes::NodeTypes(const Graph& graph, const Node& node) : in(graph.input_types(node)) {
  out.reserve(node.outputs.size());
  for (const ValueId id : node.outputs) out.push_back(graph.type(id));
}

std::vector<char> on_host(const Graph& graph) {
  std::vector<char> result(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    const Transfer transfer = node.op->transfer;
    if (transfer == Transfer::fetch) result[static_cast<size_t>(node.inputs.back())] = 1;
    if (transfer == Transfer::store) result[static_cast<size_t>(node.inputs[1])] = 1;
    if (transfer == Transfer::store || transfer == Transfer::stash)
      result[static_cast<size_t>(node.outputs[0])] = 1;
    if (transfer == Transfer::exchange) {
      for (size_t k = 0; k < node.outputs.size(); ++k)
        result[static_cast<size_t>(node.outputs[k])] =
            node.inputs.empty() ? 1 : result[static_cast<size_t>(node.inputs[k])];
    }
  }
  return result;
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
