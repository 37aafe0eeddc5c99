#pragma once

#include <functional>
#include <vector>

#include "ir/graph.h"

namespace hearth::passes {

/// A range of arena bytes that one or more values (views, in-place results) share. It is live from node
/// `first` to node `last`, inclusive. Graph outputs are live to the end.
struct Storage {
  int64_t num_bytes = 0;
  ir::NodeId first = 0;
  ir::NodeId last = 0;
  ir::ValueId value = ir::kNone;  ///< the first value of this storage
  bool on_host = false;           ///< true if it is in host memory, not in the device's arena
};

/// Maps each activation to its storage; -1 for persistent and input values and for views of them.
///
///   value %5 = conv ...      storage 0   [=====)
///   value %6 = relu(%5)      storage 0      in place: %5 dies here
///   value %7 = reshape(%6)   storage 0      a view
struct StorageMap {
  std::vector<int> of_value;
  std::vector<Storage> storages;
  /// For each value: for views and in-place results, the first value that has these bytes; otherwise the
  /// value itself.
  std::vector<ir::ValueId> root;
};

/// Rounds up to full 64-byte lines, plus one line of slack, so that vector loads never read past a buffer.
int64_t padded_bytes(int64_t num_bytes);

/// Assigns each activation a storage. A view shares the storage of its input; so does an in-place result if
/// its input is not used later.
StorageMap assign_storage(const ir::Graph& graph);

/// Returns the workspace bytes that a node's kernel needs while it runs.
using WorkspaceOf = std::function<int64_t(const ir::Node&)>;

/// Returns the max over all nodes of the device's live bytes, including workspaces: the min size of an arena
/// for this order of nodes.
int64_t peak_bytes(const ir::Graph& graph, const WorkspaceOf& workspace_of);
/// Returns, for each node, the device's live bytes while it runs, including its workspace.
std::vector<int64_t> live_bytes(const ir::Graph& graph, const StorageMap& map,
                                const WorkspaceOf& workspace_of);

}  // namespace hearth::passes
