#include "passes/memory/schedule.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ir/op_def.h"
#include "passes/rewrite.h"

/// Finding the order with the lowest peak is NP-hard (Sethi, 1975), so this is a heuristic: greedy list
/// scheduling. It tends to run the consumers of gradients early. Since it can also be worse than the original
/// order, both are compared. Any order that respects producers, readers and in-place writes computes the same
/// bits. Takes O((nodes + reads) log nodes).
namespace hearth::passes {
namespace {

using ir::index;
using ir::kNone;
using ir::NodeId;
using ir::ValueId;

/// Dependencies between nodes: readers of a value run after its producer, and a node that overwrites a value
/// runs after all of its readers.
struct Dependencies {
  std::vector<std::vector<NodeId>> after;
  std::vector<int> num_before;

  explicit Dependencies(const ir::Graph& graph)
      : after(graph.nodes.size()), num_before(graph.nodes.size(), 0) {
    const Readers reads(graph);
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
      const ir::Node& node = graph.node(id);
      for (const ValueId in : node.inputs) {
        if (in != kNone && graph.value(in).producer != kNone) add(graph.value(in).producer, id);
      }
      for (const int written : node.op->writes) {
        if (written < 0 || static_cast<size_t>(written) >= node.inputs.size()) continue;
        const ValueId in = node.inputs[static_cast<size_t>(written)];
        if (in == kNone) continue;
        for (const NodeId reader : reads[in]) {
          if (reader != id) add(reader, id);
        }
      }
    }
  }

 private:
  void add(NodeId before, NodeId later) {
    after[static_cast<size_t>(before)].push_back(later);
    ++num_before[static_cast<size_t>(later)];
  }
};

/// List scheduling: of the nodes that are ready, runs the one that frees the most bytes (inputs that are not
/// read later, minus outputs). If none frees any, runs the first in the original order.
class GreedyOrder {
 public:
  explicit GreedyOrder(const ir::Graph& graph)
      : graph_(graph), dependencies_(graph), reads_(graph), reads_left_(graph.use_counts()) {}

  std::vector<NodeId> run() {
    const auto num_nodes = static_cast<NodeId>(graph_.nodes.size());
    is_ready_.assign(graph_.nodes.size(), 0);
    net_.assign(graph_.nodes.size(), 0);
    for (NodeId id = 0; id < num_nodes; ++id) {
      if (dependencies_.num_before[index(id)] == 0) add_ready(id);
    }
    std::vector<NodeId> order;
    while (!ready_.empty()) {
      order.push_back(freeing_.empty() ? *ready_.begin() : freeing_.begin()->second);
      take(order.back());
    }
    return order;
  }

 private:
  void add_ready(NodeId id) {
    is_ready_[index(id)] = 1;
    ready_.insert(id);
    set_net(id, net_bytes(id));
  }

  void set_net(NodeId id, int64_t net) {
    if (net_[index(id)] < 0) freeing_.erase({net_[index(id)], id});
    net_[index(id)] = net;
    if (net < 0) freeing_.insert({net, id});
  }

  int64_t net_bytes(NodeId id) const {
    int64_t net = 0;
    for (const ValueId out : graph_.node(id).outputs) {
      if (graph_.value(out).role == ir::Role::activation) net += graph_.type(out).num_bytes();
    }
    for (const ValueId in : graph_.node(id).inputs) {
      if (in == kNone || graph_.value(in).producer == kNone || graph_.value(in).role != ir::Role::activation)
        continue;
      if (reads_left_[index(in)] == 1) net -= graph_.type(in).num_bytes();
    }
    return net;
  }

  void take(NodeId id) {
    set_net(id, 0);
    ready_.erase(id);
    is_ready_[index(id)] = 0;
    for (const ValueId in : graph_.node(id).inputs) {
      if (in == kNone || --reads_left_[index(in)] != 1) continue;
      for (const NodeId reader : reads_[in]) {
        if (is_ready_[index(reader)] != 0) set_net(reader, net_bytes(reader));
      }
    }
    for (const NodeId next : dependencies_.after[index(id)]) {
      if (--dependencies_.num_before[index(next)] == 0) add_ready(next);
    }
  }

  const ir::Graph& graph_;
  Dependencies dependencies_;
  Readers reads_;
  std::vector<int> reads_left_;
  std::set<NodeId> ready_;
  /// Ready nodes that free bytes, sorted by their net number of bytes, which is negative.
  std::set<std::pair<int64_t, NodeId>> freeing_;
  std::vector<char> is_ready_;
  std::vector<int64_t> net_;
};

}  // namespace

void schedule(ir::Graph& graph, const WorkspaceOf& workspace_of) {
  ir::Graph reordered = graph;
  reorder(reordered, GreedyOrder(graph).run());
  if (peak_bytes(reordered, workspace_of) < peak_bytes(graph, workspace_of)) graph = std::move(reordered);
}

}  // namespace hearth::passes
