#include "passes/memory/storage.h"

#include <algorithm>
#include <utility>

#include "ir/op_def.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

class Assigner {
 public:
  explicit Assigner(const ir::Graph& graph) : graph_(graph) {
    map_.of_value.assign(graph.values.size(), -1);
    map_.root.resize(graph.values.size());
    for (size_t i = 0; i < map_.root.size(); ++i) map_.root[i] = static_cast<ValueId>(i);
    is_output_.assign(graph.values.size(), 0);
    before_.assign(graph.values.size(), kNone);
    for (const ValueId id : graph.outputs) is_output_[index(id)] = 1;
  }

  StorageMap run() {
    find_last_reads();
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id) place_outputs(id);
    for (size_t i = 0; i < graph_.values.size(); ++i) extend(static_cast<ValueId>(i), last_read_[i]);
    return std::move(map_);
  }

 private:
  size_t index(ValueId id) const { return static_cast<size_t>(id); }

  /// Computes, for each value, the last node that reads it or a view of it.
  void find_last_reads() {
    last_read_.assign(graph_.values.size(), -1);
    for (ValueId id : graph_.outputs) last_read_[index(id)] = static_cast<NodeId>(graph_.nodes.size()) - 1;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const ir::Node& node = graph_.nodes[i];
      for (const ValueId in : node.inputs) {
        if (in != kNone) last_read_[index(in)] = std::max(last_read_[index(in)], static_cast<NodeId>(i));
      }
      if (node.op->is_view) {
        NodeId& source = last_read_[index(node.inputs[0])];
        source = std::max(source, last_read_[index(node.outputs[0])]);
      }
    }
  }

  void place_outputs(NodeId id) {
    const ir::Node& node = graph_.node(id);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const ValueId out = node.outputs[k];
      ValueId shared = kNone;
      if (node.op->is_view) shared = node.inputs[0];
      if (k < node.op->writes.size() && node.op->writes[k] >= 0) {
        shared = node.inputs[static_cast<size_t>(node.op->writes[k])];
      }
      if (shared == kNone && k == 0 && node.op->may_work_in_place) shared = dying_input(node, id);
      if (shared == kNone && node.op->in_place_input != nullptr) {
        const std::optional<size_t> input = node.op->in_place_input(node, k);
        if (input && can_share(node.inputs[*input], out, id)) shared = node.inputs[*input];
      }
      if (shared != kNone) {
        map_.root[index(out)] = map_.root[index(shared)];
        map_.of_value[index(out)] = map_.of_value[index(shared)];
      } else {
        newest_.push_back(kNone);
        map_.of_value[index(out)] = static_cast<int>(map_.storages.size());
        map_.storages.push_back({.num_bytes = padded_bytes(graph_.type(out).num_bytes()),
                                 .first = id,
                                 .last = id,
                                 .value = out,
                                 .on_host = made_on_host(node)});
      }
      if (const int storage = map_.of_value[index(out)]; storage >= 0)
        before_[index(out)] = std::exchange(newest_[static_cast<size_t>(storage)], out);
      extend(out, id);
    }
  }

  static bool made_on_host(const ir::Node& node) {
    const ir::Transfer transfer = node.op->transfer;
    return transfer == ir::Transfer::stash || (transfer == ir::Transfer::exchange && node.inputs.empty());
  }

  ValueId dying_input(const ir::Node& node, NodeId id) const {
    for (const ValueId in : node.inputs) {
      if (can_share(in, node.outputs[0], id)) return in;
    }
    return kNone;
  }

  /// True if output `out` of node `id` can have the bytes of input `in`.
  bool can_share(ValueId in, ValueId out, NodeId id) const {
    if (in == kNone || map_.of_value[index(in)] < 0 || last_read_[index(in)] != id) return false;
    if (graph_.type(in) != graph_.type(out) || is_output_[index(in)] != 0) return false;
    return storage_dies_at(map_.of_value[index(in)], id);
  }

  bool storage_dies_at(int storage, NodeId id) const {
    for (ValueId value = newest_[static_cast<size_t>(storage)]; value != kNone;
         value = before_[index(value)]) {
      if (last_read_[index(value)] > id || is_output_[index(value)] != 0) return false;
    }
    return true;
  }

  void extend(ValueId id, NodeId node) {
    const int storage = map_.of_value[index(id)];
    if (storage >= 0)
      map_.storages[static_cast<size_t>(storage)].last =
          std::max(map_.storages[static_cast<size_t>(storage)].last, node);
  }

  const ir::Graph& graph_;
  StorageMap map_;
  std::vector<NodeId> last_read_;
  std::vector<char> is_output_;
  std::vector<ValueId> newest_;  ///< for each storage, the last value assigned to it
  /// For each value, the value assigned to its storage before it; forms a linked list with newest_.
  std::vector<ValueId> before_;
};

}  // namespace

int64_t padded_bytes(int64_t num_bytes) { return num_bytes == 0 ? 64 : (num_bytes + 63) / 64 * 64 + 64; }

StorageMap assign_storage(const ir::Graph& graph) { return Assigner(graph).run(); }

std::vector<int64_t> live_bytes(const ir::Graph& graph, const StorageMap& map,
                                const WorkspaceOf& workspace_of) {
  std::vector<int64_t> change(graph.nodes.size() + 1, 0);
  for (const Storage& storage : map.storages) {
    if (storage.on_host) continue;
    change[static_cast<size_t>(storage.first)] += storage.num_bytes;
    change[static_cast<size_t>(storage.last) + 1] -= storage.num_bytes;
  }
  std::vector<int64_t> live(graph.nodes.size(), 0);
  int64_t sum = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    sum += change[i];
    const int64_t workspace = workspace_of ? workspace_of(graph.nodes[i]) : 0;
    live[i] = sum + (workspace > 0 ? padded_bytes(workspace) : 0);
  }
  return live;
}

int64_t peak_bytes(const ir::Graph& graph, const WorkspaceOf& workspace_of) {
  const std::vector<int64_t> live = live_bytes(graph, assign_storage(graph), workspace_of);
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

}  // namespace hearth::passes
