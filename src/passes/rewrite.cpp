#include "passes/rewrite.h"

#include <algorithm>
#include <numeric>

#include "ir/kernel_group.h"
#include "ir/op_def.h"

namespace hearth::passes {

Readers::Readers(const ir::Graph& graph) : begin_(graph.values.size() + 1, 0) {
  // Counting sort: counts the reads of each value, computes the end of each value's range, and fills the
  // ranges from the back, which turns ends into begins.
  const auto for_each_read = [&](size_t i, auto&& read) {
    const std::vector<ir::ValueId>& inputs = graph.nodes[i].inputs;
    for (size_t k = 0; k < inputs.size(); ++k) {
      const bool seen = std::find(inputs.begin(), inputs.begin() + static_cast<int64_t>(k), inputs[k]) !=
                        inputs.begin() + static_cast<int64_t>(k);
      if (inputs[k] != ir::kNone && !seen) read(begin_[static_cast<size_t>(inputs[k])]);
    }
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) for_each_read(i, [](int64_t& count) { ++count; });
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  nodes_.resize(static_cast<size_t>(begin_.back()));
  for (size_t i = graph.nodes.size(); i-- > 0;)
    for_each_read(i, [&](int64_t& end) { nodes_[static_cast<size_t>(--end)] = static_cast<ir::NodeId>(i); });
}

void reorder(ir::Graph& graph, std::span<const ir::NodeId> order) {
  std::vector<ir::Node> nodes;
  nodes.reserve(order.size());
  for (const ir::NodeId id : order) nodes.push_back(std::move(graph.nodes[static_cast<size_t>(id)]));
  graph.nodes = std::move(nodes);
  graph.relink();
}

void sort_by_place(ir::Graph& graph, std::span<const size_t> place) {
  std::vector<ir::NodeId> order(graph.nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](ir::NodeId id) { return place[ir::index(id)]; });
  reorder(graph, order);
}

void hoist(ir::Graph& graph, size_t first) {
  const Readers reads(graph);
  std::vector<size_t> place(graph.nodes.size());
  std::iota(place.begin(), place.end(), 0);
  for (size_t i = first; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    place[i] = 0;
    const auto behind = [&](ir::NodeId other) {
      place[i] = std::max(place[i], place[static_cast<size_t>(other)]);
    };
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ir::ValueId in = node.inputs[k];
      if (in == ir::kNone) continue;
      if (graph.value(in).producer != ir::kNone) behind(graph.value(in).producer);
      if (!overwrites(node, k)) continue;
      for (const ir::NodeId reader : reads[in]) {
        if (static_cast<size_t>(reader) < i) behind(reader);
      }
    }
  }
  sort_by_place(graph, place);
}

ir::ValueId input_or_none(const ir::Node& node, size_t index) {
  return index < node.inputs.size() ? node.inputs[index] : ir::kNone;
}

ir::ValueId input_or_none(const ir::Node& node, std::string_view name) {
  return input_or_none(node, node.op->input_index(name));
}

std::vector<char> depend_on_parameters(const ir::Graph& graph) {
  std::vector<char> depends(graph.values.size(), 0);
  for (size_t i = 0; i < depends.size(); ++i) {
    const ir::Value& value = graph.values[i];
    depends[i] = value.role == ir::Role::parameter && value.producer == ir::kNone;
  }
  for (const ir::Node& node : graph.nodes) {
    const bool any = std::ranges::any_of(node.inputs, [&](ir::ValueId in) {
      return in != ir::kNone && depends[static_cast<size_t>(in)] != 0;
    });
    for (const ir::ValueId out : node.outputs)
      depends[static_cast<size_t>(out)] = any && is_floating(graph.type(out).dtype);
  }
  return depends;
}

bool has_activation(const ir::Node& node) { return node.attrs.text_or("activation", "none") != "none"; }

bool is_produced_by(const ir::Graph& graph, ir::ValueId id, std::string_view op_name) {
  if (id == ir::kNone || graph.value(id).producer == ir::kNone) return false;
  return graph.node(graph.value(id).producer).op->name == op_name;
}

}  // namespace hearth::passes
