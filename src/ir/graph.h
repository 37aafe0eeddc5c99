#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attrs.h"
#include "ir/op_def.h"
#include "ir/value.h"

namespace hearth::ir {

struct Node {
  const OpDef* op = nullptr;
  std::vector<ValueId> inputs;  ///< kNone where an optional input is absent
  std::vector<ValueId> outputs;
  Attrs attrs;
  std::string name;  ///< where it comes from, for errors: "layer1.0.conv1"
};

/// A directed acyclic graph of nodes in a valid execution order. A node may write one of its inputs in place
/// (OpDef::writes): the output is then a new name of the same bytes, and no node after it may read the old
/// name.
class Graph {
 public:
  std::vector<Value> values;
  std::vector<Node> nodes;
  /// Values the caller reads after a run; they stay alive to the end.
  std::vector<ValueId> outputs;

  ValueId add_value(std::string name, Type type, Role role);
  /// Appends a node: infers and creates its outputs. A refused node is a UserError naming the node.
  std::vector<ValueId> add(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {},
                           std::string name = "");
  /// The same for ops with exactly one output.
  ValueId add1(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {}, std::string name = "");

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<size_t>(id)]; }
  const Type& type(ValueId id) const { return value(id).type; }
  /// The value with that name, or nothing.
  std::optional<ValueId> find(std::string_view name) const;
  /// Types of a node's inputs; an absent input has a default Type.
  std::vector<Type> input_types(const Node& node) const;

  /// For each value, how many nodes read it (graph outputs count once more).
  std::vector<int> use_counts() const;
  /// Removes nodes whose results nobody needs and renumbers producers; values keep their ids.
  void remove_dead_nodes();
  /// Renumbers `producer` fields after nodes were reordered, inserted or erased.
  void relink();
};

/// The types around a node, which its view refers to.
struct NodeTypes {
  std::vector<Type> in;
  std::vector<Type> out;

  NodeTypes(const Graph& graph, const Node& node);
  NodeView view(const Node& node, int num_threads = 1, bool winograd = true) const {
    return {.attrs = node.attrs, .in = in, .out = out, .num_threads = num_threads, .winograd = winograd};
  }
};

/// For each value, whether its bytes are in host memory: what a transfer op reads or makes there.
std::vector<char> on_host(const Graph& graph);

/// What one run of the node costs, by the op's own rule where it has one.
Cost cost_of(const Graph& graph, const Node& node);

}  // namespace hearth::ir
