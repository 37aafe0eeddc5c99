#pragma once

#include "ir/graph.h"

namespace hearth::ir {

/// Checks the invariants of a graph: ids are in range, each op has a valid number of inputs, producers are
/// consistent, values are computed before they are read and have the inferred types, no value is read after a
/// node has overwritten its bytes, and only transfer ops read host memory. Throws InternalError with `after`
/// (name of the last pass) and the nodes around the error.
void verify(const Graph& graph, std::string_view after);

}  // namespace hearth::ir
