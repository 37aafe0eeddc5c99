#pragma once

#include <cstddef>
#include <vector>

#include "ir/graph.h"

namespace hearth::ir {

/// Whether the node writes over the bytes of its input number `index`.
bool overwrites(const Node& node, size_t index);

/// Whether one kernel may take both nodes (OpDef::gpu_many), as far as their kind goes.
bool may_share_kernel(const Graph& graph, const Node& a, const Node& b);

/// How many nodes from number `first` on one kernel may take: of one op and alike but for shapes, with the
/// same scalars, and none needs what another makes or overwrites. At least 1.
size_t num_together(const Graph& graph, size_t first);

/// Of every node, whether a kernel starts with it: not of views, nor of those after the first of a group.
std::vector<bool> kernel_starts(const Graph& graph);

}  // namespace hearth::ir
