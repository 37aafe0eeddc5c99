#include "passes/memory/offload.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "cost/seconds.h"
#include "ir/op_def.h"
#include "ops/op_list.h"
#include "passes/rewrite.h"

/// offload() rebuilds the node list: a node that reads an offloaded value gets a fetch before it; one that
/// writes it gets a store after it. prefetch() then hides the time of the copies: it moves each fetch back
/// from its reader, over as many nodes as take the time of the copy according to the cost model. A fetched
/// value is live from its fetch on, so a fetch moves back only while the live bytes stay within the limit.
/// Fetches keep their order, because they share one copy queue. Takes time linear in the number of nodes plus
/// steps moved.
namespace hearth::passes {
namespace {

using ir::kNone;
using ir::ValueId;

class Offload {
 public:
  Offload(ir::Graph& graph, const OffloadOptions& options) : graph_(graph), options_(options) {}

  void run() {
    const std::vector<ir::Node> old = std::exchange(graph_.nodes, {});
    for (const ir::Node& node : old) rebuild(node);
    graph_.relink();
  }

 private:
  bool is_offloaded(ValueId id) const {
    const ir::Value& value = graph_.value(id);
    if (value.type.num_bytes() < options_.min_bytes || value.producer != kNone) return false;
    if (value.role == ir::Role::state || value.role == ir::Role::carried) return options_.states;
    return options_.weights && (value.role == ir::Role::parameter || value.role == ir::Role::frozen);
  }

  void rebuild(ir::Node node) {
    std::vector<ValueId> home(node.inputs.size(), kNone);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId& in = node.inputs[i];
      if (in == kNone) continue;
      if (const auto found = home_.find(in); found != home_.end()) {
        home[i] = found->second;
      } else if (is_offloaded(in)) {
        home[i] = in;
        in = append("fetch", {in}, graph_.value(in).name);
      }
    }
    graph_.nodes.push_back(node);
    for (size_t k = 0; k < node.op->writes.size() && k < node.outputs.size(); ++k) {
      if (const int written = node.op->writes[k]; written >= 0)
        write_back(node.outputs[k], home[static_cast<size_t>(written)]);
    }
  }

  /// Appends a store that copies `out`, the new contents of the offloaded value `home`, to host memory.
  void write_back(ValueId out, ValueId home) {
    if (home == kNone) return;
    const std::string name = graph_.value(home).name;
    graph_.value(out).role = ir::Role::activation;
    graph_.value(out).name.clear();
    home_[out] = append("store", {out, home}, name);
  }

  ValueId append(std::string_view op, std::vector<ValueId> inputs, const std::string& name) {
    return graph_.add1(*ops::find_op(op), std::move(inputs), {}, name);
  }

  ir::Graph& graph_;
  const OffloadOptions& options_;
  /// For each device value that is the newest version of an offloaded value, the value in host memory.
  std::map<ValueId, ValueId> home_;
};

/// Adds a buffer of `num_bytes` that is live over nodes [begin, end), if no node then has more than `limit`
/// live bytes. Returns true if it was added.
bool grow(std::vector<int64_t>& live, size_t begin, size_t end, int64_t num_bytes, int64_t limit) {
  const auto first = live.begin() + static_cast<int64_t>(begin);
  const auto last = live.begin() + static_cast<int64_t>(end);
  if (std::any_of(first, last, [&](int64_t bytes) { return bytes + num_bytes > limit; })) return false;
  std::for_each(first, last, [&](int64_t& bytes) { bytes += num_bytes; });
  return true;
}

}  // namespace

void offload(ir::Graph& graph, const OffloadOptions& options) {
  if (options.states || options.weights) Offload(graph, options).run();
}

void prefetch(ir::Graph& graph, int64_t limit_bytes, const WorkspaceOf& workspace_of,
              const cost::Device& device) {
  const auto is_fetch = [](const ir::Node& node) { return node.op->transfer == ir::Transfer::fetch; };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_fetch)) return;
  std::vector<int64_t> live = live_bytes(graph, assign_storage(graph), workspace_of);
  const int64_t limit = std::max(limit_bytes, *std::max_element(live.begin(), live.end()));
  std::vector<size_t> positions;  // new position of each node
  size_t earliest = 0;
  bool follows_fetch = false;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    size_t position = i;
    const ir::Node& node = graph.nodes[i];
    if (follows_fetch && !is_fetch(node)) earliest = i;
    follows_fetch = is_fetch(node);
    if (follows_fetch) {
      const ir::NodeId made = graph.value(node.inputs.back()).producer;
      const size_t first = std::max(earliest, static_cast<size_t>(made + 1));
      const int64_t num_bytes = padded_bytes(graph.type(node.outputs[0]).num_bytes());
      double covered = 0;
      const double wanted = cost::seconds_of(graph, node, device);
      while (position > first && covered < wanted && grow(live, position - 1, position, num_bytes, limit))
        covered += cost::seconds_of(graph, graph.nodes[--position], device);
    }
    positions.push_back(position);
  }
  // A moved node is placed before the node that had its new position.
  const auto key = [&](ir::NodeId id) {
    const auto stood = static_cast<size_t>(id);
    return std::pair(positions[stood], positions[stood] == stood);
  };
  std::vector<ir::NodeId> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](ir::NodeId a, ir::NodeId b) { return key(a) < key(b); });
  reorder(graph, order);
}

}  // namespace hearth::passes
