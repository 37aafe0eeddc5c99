#pragma once

#include <map>
#include <vector>

#include "ir/graph.h"

namespace hearth::ops {

/// Evaluates a full graph in float64 with OpDef::reference, as the ground truth of tests. `values` must hold
/// every leaf and receives every other value. InternalError for an op without a reference.
void evaluate_reference(const ir::Graph& graph, std::map<ir::ValueId, std::vector<double>>& values);

}  // namespace hearth::ops
