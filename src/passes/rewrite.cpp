#include "passes/rewrite.h"

#include "ir/op_def.h"

namespace hearth::passes {

std::vector<std::vector<ir::NodeId>> readers(const ir::Graph& graph) {
  std::vector<std::vector<ir::NodeId>> result(graph.values.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ir::ValueId id : graph.nodes[i].inputs) {
      if (id == ir::kNone) continue;
      auto& list = result[static_cast<size_t>(id)];
      if (list.empty() || list.back() != static_cast<ir::NodeId>(i))
        list.push_back(static_cast<ir::NodeId>(i));
    }
  }
  return result;
}

bool is_made_by(const ir::Graph& graph, ir::ValueId id, std::string_view op_name) {
  if (id == ir::kNone || graph.value(id).producer == ir::kNone) return false;
  return graph.node(graph.value(id).producer).op->name == op_name;
}

}  // namespace hearth::passes
