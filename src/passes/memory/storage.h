#pragma once

#include <functional>
#include <vector>

#include "ir/graph.h"

namespace hearth::passes {

/// A run of arena bytes that one or several values share (views, in-place results), live over nodes
/// [first, last + 1) of the graph. Graph outputs stay live to the end.
struct Storage {
  int64_t num_bytes = 0;
  ir::NodeId first = 0;
  ir::NodeId last = 0;
  ir::ValueId value = ir::kNone;  ///< the first value that lives here
  bool on_host = false;           ///< no bytes of the device's arena
};

/// Which storage each activation lives in; -1 for persistent and input values and for views of them.
///
///   value %5 = conv ...      storage 0   [=====)
///   value %6 = relu(%5)      storage 0      in place: %5 dies here
///   value %7 = reshape(%6)   storage 0      a view
struct StorageMap {
  std::vector<int> of_value;
  std::vector<Storage> storages;
  /// For views and written values: the value whose bytes this one names; itself otherwise.
  std::vector<ir::ValueId> root;
};

/// Rounds up to whole 64-byte lines plus one line of slack, so that vector loads never leave a buffer.
int64_t padded_bytes(int64_t num_bytes);

StorageMap assign_storage(const ir::Graph& graph);

/// Bytes a node's kernel needs while it runs.
using WorkspaceOf = std::function<int64_t(const ir::Node&)>;

/// The most bytes of the device live at any node, workspaces included: the least an arena can have under this
/// order.
int64_t peak_bytes(const ir::Graph& graph, const WorkspaceOf& workspace_of);
/// Live bytes of the device at each node, workspaces included.
std::vector<int64_t> live_bytes(const ir::Graph& graph, const StorageMap& map,
                                const WorkspaceOf& workspace_of);

}  // namespace hearth::passes
