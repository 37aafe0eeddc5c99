#include "ir/graph.h"

#include <algorithm>

#include "base/error.h"

namespace hearth::ir {
namespace {

bool is_needed(const Graph& graph, const Node& node, const std::vector<char>& live) {
  if (node.op->keeps_alive()) return true;
  return std::any_of(node.outputs.begin(), node.outputs.end(),
                     [&](ValueId id) { return live[static_cast<size_t>(id)] != 0; }) &&
         !graph.values.empty();
}

std::string describe(const Node& node) {
  return node.name.empty() ? std::string(node.op->name) : fmt::format("{} ({})", node.op->name, node.name);
}

}  // namespace

ValueId Graph::add_value(std::string name, Type type, Role role) {
  values.push_back({.name = std::move(name), .type = type, .role = role, .producer = kNone});
  return static_cast<ValueId>(values.size() - 1);
}

std::vector<ValueId> Graph::add(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, std::string name) {
  Node node{.op = &op,
            .inputs = std::move(inputs),
            .outputs = {},
            .attrs = std::move(attrs),
            .name = std::move(name)};
  if (const std::string fault = op.inputs_error(node.inputs); !fault.empty())
    internal_error("{}{}", fault, node.name.empty() ? "" : " (" + node.name + ")");
  const std::vector<Type> in = input_types(node);
  const Inferred inferred = op.infer({.attrs = node.attrs, .in = in, .out = {}});
  if (!inferred.error.empty()) user_error("{}: {}", describe(node), inferred.error);
  const auto id = static_cast<NodeId>(nodes.size());
  for (size_t k = 0; k < inferred.out.size(); ++k) {
    const ValueId out = add_value("", inferred.out[k], Role::activation);
    value(out).producer = id;
    if (k < op.writes.size() && op.writes[k] >= 0) {
      const Value& written = value(node.inputs[static_cast<size_t>(op.writes[k])]);
      value(out).role = written.role;
      value(out).name = written.name;
    }
    node.outputs.push_back(out);
  }
  nodes.push_back(std::move(node));
  return nodes.back().outputs;
}

ValueId Graph::add1(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, std::string name) {
  const std::vector<ValueId> out = add(op, std::move(inputs), std::move(attrs), std::move(name));
  HEARTH_CHECK(out.size() == 1);
  return out[0];
}

std::optional<ValueId> Graph::find(std::string_view name) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == name) return static_cast<ValueId>(i);
  }
  return std::nullopt;
}

std::vector<Type> Graph::input_types(const Node& node) const {
  std::vector<Type> types;
  types.reserve(node.inputs.size());
  for (const ValueId id : node.inputs) {
    types.push_back(id == kNone ? Type{.dtype = DType::boolean, .shape = {}} : type(id));
  }
  return types;
}

std::vector<int> Graph::use_counts() const {
  std::vector<int> counts(values.size(), 0);
  for (const Node& node : nodes) {
    for (const ValueId id : node.inputs) {
      if (id != kNone) ++counts[static_cast<size_t>(id)];
    }
  }
  for (const ValueId id : outputs) ++counts[static_cast<size_t>(id)];
  return counts;
}

void Graph::remove_dead_nodes() {
  std::vector<char> live(values.size(), 0);
  for (const ValueId id : outputs) live[static_cast<size_t>(id)] = 1;
  std::vector<char> needed(nodes.size(), 0);
  for (size_t i = nodes.size(); i-- > 0;) {
    if (!is_needed(*this, nodes[i], live)) continue;
    needed[i] = 1;
    for (const ValueId id : nodes[i].inputs) {
      if (id != kNone) live[static_cast<size_t>(id)] = 1;
    }
  }
  size_t num_kept = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (needed[i] == 0) continue;
    if (num_kept != i) nodes[num_kept] = std::move(nodes[i]);
    ++num_kept;
  }
  nodes.erase(nodes.begin() + static_cast<int64_t>(num_kept), nodes.end());
  relink();
}

void Graph::relink() {
  for (Value& value : values) value.producer = kNone;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const ValueId id : nodes[i].outputs) value(id).producer = static_cast<NodeId>(i);
  }
}

NodeTypes::NodeTypes(const Graph& graph, const Node& node) : in(graph.input_types(node)) {
  out.reserve(node.outputs.size());
  for (const ValueId id : node.outputs) out.push_back(graph.type(id));
}

std::vector<char> on_host(const Graph& graph) {
  std::vector<char> result(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    const Transfer transfer = node.op->transfer;
    if (transfer == Transfer::fetch) result[static_cast<size_t>(node.inputs.back())] = 1;
    if (transfer == Transfer::store) result[static_cast<size_t>(node.inputs[1])] = 1;
    if (transfer == Transfer::store || transfer == Transfer::stash)
      result[static_cast<size_t>(node.outputs[0])] = 1;
    if (transfer == Transfer::exchange) {
      for (size_t k = 0; k < node.outputs.size(); ++k)
        result[static_cast<size_t>(node.outputs[k])] =
            node.inputs.empty() ? 1 : result[static_cast<size_t>(node.inputs[k])];
    }
  }
  return result;
}

Cost cost_of(const Graph& graph, const Node& node) {
  const NodeTypes types(graph, node);
  if (node.op->cost != nullptr) return node.op->cost(types.view(node));
  Cost cost;
  for (const auto& side : {types.in, types.out}) {
    for (const Type& type : side) cost.bytes += static_cast<double>(type.num_bytes());
  }
  return cost;
}

}  // namespace hearth::ir
