#pragma once

#include "ir/graph.h"

namespace hearth::ir {

/// Checks every invariant of a graph: ids in range, no input of an op missing and none too many, producers
/// consistent, each input made before it is read, types equal to what the op infers, no old name read after
/// its bytes were overwritten, and host memory read by transfers only. Throws InternalError naming `after`
/// (the pass that ran last) with the nodes around the fault.
void verify(const Graph& graph, std::string_view after);

}  // namespace hearth::ir
