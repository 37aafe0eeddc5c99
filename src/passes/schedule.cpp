#include "passes/schedule.h"

#include <algorithm>
#include <set>

#include "ir/op_def.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

/// Edges between nodes: producer before reader, and every reader of a value before the node that overwrites
/// it.
struct Dependencies {
  std::vector<std::vector<NodeId>> after;
  std::vector<int> num_before;

  explicit Dependencies(const ir::Graph& graph)
      : after(graph.nodes.size()), num_before(graph.nodes.size(), 0) {
    const auto reads = readers(graph);
    for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
      const ir::Node& node = graph.node(id);
      for (const ValueId in : node.inputs) {
        if (in != kNone && graph.value(in).producer != kNone) add(graph.value(in).producer, id);
      }
      for (const int written : node.op->writes) {
        if (written < 0 || static_cast<size_t>(written) >= node.inputs.size()) continue;
        const ValueId in = node.inputs[static_cast<size_t>(written)];
        if (in == kNone) continue;
        for (const NodeId reader : reads[static_cast<size_t>(in)]) {
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

/// List scheduling: of the ready nodes, the one that changes live bytes least (most negative first); the
/// order as built breaks ties.
std::vector<NodeId> greedy_order(const ir::Graph& graph) {
  Dependencies dependencies(graph);
  std::vector<int> reads_left = graph.use_counts();
  const auto net_bytes = [&](NodeId id) {
    int64_t net = 0;
    for (const ValueId out : graph.node(id).outputs) {
      if (graph.value(out).role == ir::Role::activation) net += graph.type(out).num_bytes();
    }
    for (const ValueId in : graph.node(id).inputs) {
      if (in == kNone || graph.value(in).producer == kNone || graph.value(in).role != ir::Role::activation)
        continue;
      if (reads_left[static_cast<size_t>(in)] == 1) net -= graph.type(in).num_bytes();
    }
    return net;
  };
  std::set<NodeId> ready;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    if (dependencies.num_before[static_cast<size_t>(id)] == 0) ready.insert(id);
  }
  std::vector<NodeId> order;
  while (!ready.empty()) {
    NodeId best = *ready.begin();
    int64_t best_net = net_bytes(best);
    for (const NodeId id : ready) {
      const int64_t net = net_bytes(id);
      if (net < best_net && net < 0) {
        best = id;
        best_net = net;
      }
    }
    ready.erase(best);
    order.push_back(best);
    for (const ValueId in : graph.node(best).inputs) {
      if (in != kNone) --reads_left[static_cast<size_t>(in)];
    }
    for (const NodeId next : dependencies.after[static_cast<size_t>(best)]) {
      if (--dependencies.num_before[static_cast<size_t>(next)] == 0) ready.insert(next);
    }
  }
  return order;
}

}  // namespace

void schedule(ir::Graph& graph, const WorkspaceOf& workspace_of) {
  ir::Graph reordered = graph;
  const std::vector<NodeId> order = greedy_order(graph);
  for (size_t i = 0; i < order.size(); ++i) reordered.nodes[i] = graph.node(order[i]);
  reordered.relink();
  if (peak_bytes(reordered, workspace_of) < peak_bytes(graph, workspace_of)) graph = std::move(reordered);
}

}  // namespace hearth::passes
