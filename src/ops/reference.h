#pragma once

#include <map>
#include <vector>

#include "ir/graph.h"

namespace hearth::ops {

/// Evaluates all nodes of a graph in float64 with OpDef::reference, as the ground truth of tests. `values`
/// must contain every value that no node computes (inputs, parameters); all others are added to it.
/// InternalError for an op without a reference.
void evaluate_reference(const ir::Graph& graph, std::map<ir::ValueId, std::vector<double>>& values);

}  // namespace hearth::ops
