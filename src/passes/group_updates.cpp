#include "passes/group_updates.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/function_ref.h"
#include "ir/kernel_group.h"
#include "ir/op_def.h"
#include "passes/rewrite.h"

namespace hearth::passes {

using ir::kNone;
using ir::ValueId;

namespace {

/// New places of nodes, which are sorted by place: a node that joins a group gets the place of its leader.
class Places {
 public:
  explicit Places(const ir::Graph& graph) : graph_(graph), place_(graph.nodes.size()) {
    std::iota(place_.begin(), place_.end(), 0);
  }
  size_t of(ir::NodeId node) const { return place_[ir::index(node)]; }
  const std::vector<size_t>& all() const { return place_; }
  /// Lets node i join the first leader with which it can share a kernel and for which fits(leader) is true;
  /// without one, the node becomes a leader.
  void join(size_t i, FunctionRef<bool(size_t leader)> fits) {
    const auto found = std::ranges::find_if(leaders_, [&](size_t leader) {
      return ir::can_share_kernel(graph_, graph_.nodes[leader], graph_.nodes[i]) && fits(leader);
    });
    if (found == leaders_.end()) {
      leaders_.push_back(i);
    } else {
      place_[i] = *found;
    }
  }

 private:
  const ir::Graph& graph_;
  std::vector<size_t> place_, leaders_;
};

/// Sorts nodes by place[i], keeping the order of equal places, unless peak memory would rise.
void move_unless_peak_rises(ir::Graph& graph, const std::vector<size_t>& place,
                            const WorkspaceOf& workspace_of) {
  ir::Graph grouped = graph;
  sort_by_place(grouped, place);
  if (peak_bytes(grouped, workspace_of) <= peak_bytes(graph, workspace_of)) graph = std::move(grouped);
}

}  // namespace

void group_updates(ir::Graph& graph) {
  const Readers reads(graph);
  Places places(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    if (!node.op->gpu_many || node.op->writes.empty()) continue;
    const auto needs = [&](size_t leader) {
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const ValueId in = node.inputs[k];
        if (in == kNone) continue;
        const auto is_late = [&](ir::NodeId other) {
          return static_cast<size_t>(other) < i && places.of(other) >= leader;
        };
        if (graph.value(in).producer != kNone && is_late(graph.value(in).producer)) return true;
        if (overwrites(node, k) && std::ranges::any_of(reads[in], is_late)) return true;
      }
      return false;
    };
    places.join(i, [&](size_t leader) { return !needs(leader); });
  }
  sort_by_place(graph, places.all());
}

void group_casts(ir::Graph& graph, const WorkspaceOf& workspace_of) {
  Places places(graph);
  std::set<ValueId> cast;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    const bool casts = node.op->name == "cast" || node.op->name == "stack_rows";
    if (!casts || graph.value(node.inputs[0]).producer != kNone) continue;
    if (!cast.insert(node.inputs[0]).second) continue;
    places.join(i, [](size_t) { return true; });
  }
  move_unless_peak_rises(graph, places.all(), workspace_of);
}

void group_unstacking(ir::Graph& graph, const WorkspaceOf& workspace_of) {
  const Readers reads(graph);
  Places places(graph);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const ir::Node& node = graph.nodes[i];
    if (node.op->name != "unstack_rows") continue;
    const auto is_read_before = [&](size_t leader) {
      return std::ranges::any_of(node.outputs, [&](ValueId out) {
        return !reads[out].empty() && static_cast<size_t>(reads[out].front()) < leader;
      });
    };
    places.join(i, [&](size_t leader) { return !is_read_before(leader); });
  }
  move_unless_peak_rises(graph, places.all(), workspace_of);
}

}  // namespace hearth::passes
