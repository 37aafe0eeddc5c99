#pragma once

#include <map>
#include <vector>

#include "ir/graph.h"

namespace hearth::ops {

/// Evaluates a whole graph in float64 by OpDef::reference: the yardstick of tests. `values` holds every leaf
/// and receives every other value. InternalError for an op without a reference.
void evaluate_reference(const ir::Graph& graph, std::map<ir::ValueId, std::vector<double>>& values);

}  // namespace hearth::ops
