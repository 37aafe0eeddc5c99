#include "passes/memory/repeat.h"

#include <algorithm>

#include "ir/op_def.h"

namespace hearth::passes {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

bool can_repeat(const ir::Graph& graph, ValueId value) {
  if (graph.value(value).producer == kNone) return false;
  const ir::Node& node = graph.node(graph.value(value).producer);
  if (node.op->repeat_output != nullptr) return true;
  if (node.outputs.front() != value) return false;
  return node.op->repeat != nullptr || (node.op->writes.empty() && node.outputs.size() == 1);
}

ir::Node repeat_node(const ir::Node& node, ValueId value) {
  if (node.op->repeat_output != nullptr) {
    const auto output = std::ranges::find(node.outputs, value) - node.outputs.begin();
    return node.op->repeat_output(node, static_cast<size_t>(output));
  }
  if (node.op->repeat != nullptr) return node.op->repeat(node);
  return {.op = node.op, .inputs = node.inputs, .outputs = {}, .attrs = node.attrs, .name = node.name};
}

std::vector<ValueId> repeat_inputs(const ir::Graph& graph, ValueId value) {
  const ir::Node& node = graph.node(graph.value(value).producer);
  const bool changes = node.op->repeat != nullptr || node.op->repeat_output != nullptr;
  return changes ? repeat_node(node, value).inputs : node.inputs;
}

void add_other_outputs(ir::Graph& graph, const ir::Node& original, ir::Node& copy) {
  if (copy.op->repeat_output != nullptr) return;
  for (size_t k = 1; copy.op == original.op && k < original.outputs.size(); ++k)
    copy.outputs.push_back(graph.add_value("", graph.type(original.outputs[k]), ir::Role::activation));
}

std::vector<NodeId> overwriting_nodes(const ir::Graph& graph) {
  std::vector<NodeId> result(graph.values.size(), static_cast<NodeId>(graph.nodes.size()));
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    const std::vector<int>& writes = node.op->writes;
    for (size_t k = 0; k < std::min(writes.size(), node.outputs.size()); ++k) {
      if (writes[k] < 0) continue;
      result[ir::index(node.inputs[static_cast<size_t>(writes[k])])] = static_cast<NodeId>(i);
    }
  }
  return result;
}

}  // namespace hearth::passes
