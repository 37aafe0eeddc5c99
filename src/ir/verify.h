#pragma once

#include "ir/graph.h"

namespace hearth::ir {

/// Checks all invariants of a graph: ids in range, number of inputs of each op, consistent producers, values
/// computed before they are read, types equal to the inferred ones, no read of an old name after its bytes
/// were overwritten, and host memory read by transfer ops only. Throws InternalError with `after` (the last
/// pass) and the nodes around the error.
void verify(const Graph& graph, std::string_view after);

}  // namespace hearth::ir
