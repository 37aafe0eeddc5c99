#include "ops/reference.h"

#include "base/error.h"
#include "ir/op_def.h"

namespace hearth::ops {

void evaluate_reference(const ir::Graph& graph, std::map<ir::ValueId, std::vector<double>>& values) {
  for (const ir::Node& node : graph.nodes) {
    if (node.op->reference == nullptr)
      internal_error("op '{}' has no reference implementation: {}", node.op->name,
                     node.op->no_reference_because);
    const std::vector<ir::Type> in_types = graph.input_types(node);
    std::vector<ir::Type> out_types;
    std::vector<std::vector<double>> in;
    std::vector<std::vector<double>> out;
    for (const ir::ValueId id : node.inputs)
      in.push_back(id == ir::kNone ? std::vector<double>() : values.at(id));
    for (const ir::ValueId id : node.outputs) {
      out_types.push_back(graph.type(id));
      out.emplace_back(static_cast<size_t>(graph.type(id).shape.num_elements()));
    }
    const ir::NodeView view{.attrs = node.attrs, .in = in_types, .out = out_types};
    node.op->reference({.node = view, .in = in, .out = out});
    for (size_t k = 0; k < out.size(); ++k) values[node.outputs[k]] = std::move(out[k]);
  }
}

}  // namespace hearth::ops
