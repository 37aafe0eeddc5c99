#include "passes/group_updates.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/kernel_group.h"
#include "ir/op_def.h"
#include "passes/rewrite.h"

namespace hearth::passes {

using ir::kNone;
using ir::ValueId;

namespace {

/// Sorts nodes by place[i], keeping the order of equal places, unless peak memory would rise.
void move_unless_peak_rises(ir::Graph& graph, const std::vector<size_t>& place,
                            const WorkspaceOf& workspace_of) {
  std::vector<ir::NodeId> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](ir::NodeId id) { return place[static_cast<size_t>(id)]; });
  ir::Graph grouped = graph;
  reorder(grouped, order);
  if (peak_bytes(grouped, workspace_of) <= peak_bytes(graph, workspace_of)) graph = std::move(grouped);
}

}  // namespace

void group_updates(ir::Graph& graph) {
  const Readers reads(graph);
  std::vector<size_t> place(graph.nodes.size());
  std::iota(place.begin(), place.end(), 0);
  std::vector<size_t> leaders;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    if (!node.op->gpu_many || node.op->writes.empty()) continue;
    const auto needs = [&](size_t leader) {
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const ValueId in = node.inputs[k];
        if (in == kNone) continue;
        const auto is_late = [&](ir::NodeId other) {
          return static_cast<size_t>(other) < i && place[static_cast<size_t>(other)] >= leader;
        };
        if (graph.value(in).producer != kNone && is_late(graph.value(in).producer)) return true;
        if (overwrites(node, k) && std::ranges::any_of(reads[in], is_late)) return true;
      }
      return false;
    };
    const auto found = std::ranges::find_if(leaders, [&](size_t leader) {
      return ir::can_share_kernel(graph, graph.nodes[leader], node) && !needs(leader);
    });
    if (found == leaders.end()) {
      leaders.push_back(i);
    } else {
      place[i] = *found;
    }
  }
  std::vector<ir::NodeId> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](ir::NodeId id) { return place[static_cast<size_t>(id)]; });
  reorder(graph, order);
}

void group_casts(ir::Graph& graph, const WorkspaceOf& workspace_of) {
  std::vector<size_t> place(graph.nodes.size());
  std::iota(place.begin(), place.end(), 0);
  std::vector<size_t> leaders;
  std::set<ValueId> cast;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    const bool casts = node.op->name == "cast" || node.op->name == "stack_rows";
    if (!casts || graph.value(node.inputs[0]).producer != kNone) continue;
    if (!cast.insert(node.inputs[0]).second) continue;
    const auto found = std::ranges::find_if(
        leaders, [&](size_t leader) { return ir::can_share_kernel(graph, graph.nodes[leader], node); });
    if (found == leaders.end()) {
      leaders.push_back(i);
    } else {
      place[i] = *found;
    }
  }
  move_unless_peak_rises(graph, place, workspace_of);
}

void group_unstacking(ir::Graph& graph, const WorkspaceOf& workspace_of) {
  const Readers reads(graph);
  std::vector<size_t> place(graph.nodes.size());
  std::iota(place.begin(), place.end(), 0);
  std::vector<size_t> leaders;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const ir::Node& node = graph.nodes[i];
    if (node.op->name != "unstack_rows") continue;
    const auto is_read_before = [&](size_t leader) {
      return std::ranges::any_of(node.outputs, [&](ValueId out) {
        return !reads[out].empty() && static_cast<size_t>(reads[out].front()) < leader;
      });
    };
    const auto found = std::ranges::find_if(leaders, [&](size_t leader) {
      return ir::can_share_kernel(graph, graph.nodes[leader], node) && !is_read_before(leader);
    });
    if (found == leaders.end()) {
      leaders.push_back(i);
    } else {
      place[i] = *found;
    }
  }
  move_unless_peak_rises(graph, place, workspace_of);
}

}  // namespace hearth::passes
