#pragma once

#include <cstddef>
#include <vector>

#include "ir/graph.h"

namespace hearth::ir {

/// Returns true if the node overwrites the bytes of input `index`.
bool overwrites(const Node& node, size_t index);

/// Returns true if op, attributes and dtypes allow one kernel to execute both nodes (OpDef::gpu_many). Does
/// not check data dependencies.
bool can_share_kernel(const Graph& graph, const Node& a, const Node& b);

/// Returns how many consecutive nodes, from node `first` on, can run as one kernel; at least 1. They have the
/// same op and scalar inputs, differ in shapes only, and neither read nor overwrite each other's outputs.
size_t num_nodes_in_kernel(const Graph& graph, size_t first);

/// Returns, for each node, true if a kernel launch begins with it. False for views, and for all but the first
/// node of a group that runs as one kernel.
std::vector<bool> kernel_starts(const Graph& graph);

}  // namespace hearth::ir
