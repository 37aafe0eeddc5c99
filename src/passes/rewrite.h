#pragma once

#include <vector>

#include "ir/graph.h"

namespace hearth::passes {

/// For each value, the nodes that read it, in order.
std::vector<std::vector<ir::NodeId>> readers(const ir::Graph& graph);

/// Whether `id` is an activation made by a node of the op with that name.
bool is_made_by(const ir::Graph& graph, ir::ValueId id, std::string_view op_name);

}  // namespace hearth::passes
