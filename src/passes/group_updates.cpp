#include "passes/group_updates.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "ir/op_def.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::ValueId;

/// Whether what a node overwrites stays on the device: what is fetched for it takes room until it is done.
bool overwrites_residents(const ir::Graph& graph, const ir::Node& node) {
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const ValueId in = node.inputs[k];
    if (in != kNone && overwrites(node, k) && graph.value(in).producer != kNone) return false;
  }
  return true;
}

/// Whether two nodes may have one kernel, as far as their kind goes.
bool alike(const ir::Graph& graph, const ir::Node& a, const ir::Node& b) {
  if (a.op != b.op || a.op->gpu_many == nullptr || a.attrs != b.attrs || a.inputs.size() != b.inputs.size())
    return false;
  if (!overwrites_residents(graph, a) || !overwrites_residents(graph, b)) return false;
  for (size_t k = 0; k < a.inputs.size(); ++k) {
    const ValueId own = a.inputs[k], other = b.inputs[k];
    if ((own == kNone) != (other == kNone)) return false;
    if (own == kNone) continue;
    const ir::Type &type = graph.type(own), &others = graph.type(other);
    if (type.dtype != others.dtype) return false;
    const bool is_scalar = type.shape.rank() == 0 || others.shape.rank() == 0;
    if (is_scalar && own != other) return false;
  }
  return true;
}

}  // namespace

void group_updates(ir::Graph& graph) {
  const Readers reads(graph);
  std::vector<size_t> place(graph.nodes.size());
  std::iota(place.begin(), place.end(), 0);
  std::vector<size_t> leaders;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    if (node.op->gpu_many == nullptr) continue;
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
    const auto found = std::ranges::find_if(
        leaders, [&](size_t leader) { return alike(graph, graph.nodes[leader], node) && !needs(leader); });
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

size_t num_together(const ir::Graph& graph, size_t first) {
  std::set<ValueId> made, read, overwritten;
  size_t count = 0;
  for (size_t i = first; i < graph.nodes.size() && alike(graph, graph.nodes[first], graph.nodes[i]); ++i) {
    const ir::Node& node = graph.nodes[i];
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId in = node.inputs[k];
      if (in == kNone) continue;
      const bool writes = overwrites(node, k);
      if (made.contains(in) || overwritten.contains(in) || (writes && read.contains(in))) return count;
    }
    for (size_t k = 0; k < node.inputs.size(); ++k)
      (overwrites(node, k) ? overwritten : read).insert(node.inputs[k]);
    made.insert(node.outputs.begin(), node.outputs.end());
    ++count;
  }
  return std::max<size_t>(1, count);
}

}  // namespace hearth::passes
