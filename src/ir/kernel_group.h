#pragma once

#include <cstddef>
#include <vector>

#include "ir/graph.h"

namespace hearth::ir {

/// Returns true if the node writes over the bytes of input `index`.
bool overwrites(const Node& node, size_t index);

/// Returns true if one kernel may run both nodes (OpDef::gpu_many), by op, attributes and dtypes; data
/// dependencies are not checked.
bool can_share_kernel(const Graph& graph, const Node& a, const Node& b);

/// Returns how many consecutive nodes from node `first` on can run as one kernel: nodes of one op that
/// differ in shapes only, have the same scalar inputs, and do not read or overwrite each other's
/// outputs. At least 1.
size_t num_nodes_in_kernel(const Graph& graph, size_t first);

/// Returns for each node true if it starts a kernel: false for views and for all but the first node
/// of a group.
std::vector<bool> kernel_starts(const Graph& graph);

}  // namespace hearth::ir
