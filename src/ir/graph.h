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

/// A node: the application of an op to input values, which produces output values.
struct Node {
  const OpDef* op = nullptr;
  std::vector<ValueId> inputs;  ///< kNone for an absent optional input
  std::vector<ValueId> outputs;
  Attrs attrs;
  std::string name;  ///< name of the layer, for error messages: "layer1.0.conv1"
};

/// A directed acyclic graph of nodes, stored in a valid execution order. If a node writes one of its inputs
/// in place (OpDef::writes), its output is a new value with the same bytes, and no later node may read the
/// input.
class Graph {
 public:
  std::vector<Value> values;
  std::vector<Node> nodes;
  /// Values that the caller reads after a run; they stay alive until the end of the run.
  std::vector<ValueId> outputs;

  /// Adds a value without a producer and returns its id.
  ValueId add_value(std::string name, Type type, Role role);
  /// Appends a node: infers the types of its outputs and creates them. UserError with the node's name if the
  /// op rejects its inputs.
  std::vector<ValueId> add(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {},
                           std::string name = "");
  /// Appends a node of an op that has exactly one output, and returns that output.
  ValueId add1(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {}, std::string name = "");

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<size_t>(id)]; }
  const Type& type(ValueId id) const { return value(id).type; }
  /// Returns the value with that name; nullopt if there is none.
  std::optional<ValueId> find(std::string_view name) const;
  /// Returns the types of a node's inputs; an absent input has a default-constructed Type.
  std::vector<Type> input_types(const Node& node) const;

  /// Returns, for each value, the number of nodes that read it. A graph output counts as read once more.
  std::vector<int> use_counts() const;
  /// Removes nodes whose results are never used and updates producers; values keep their ids.
  void remove_dead_nodes();
  /// Recomputes Value::producer of all values. Call this after nodes were reordered, inserted or erased.
  void relink();
};

/// The input and output types of a node. Owns the arrays that a NodeView refers to.
struct NodeTypes {
  std::vector<Type> in;
  std::vector<Type> out;

  NodeTypes(const Graph& graph, const Node& node);
  NodeView view(const Node& node, int num_threads = 1, bool winograd = true) const {
    return {.attrs = node.attrs, .in = in, .out = out, .num_threads = num_threads, .winograd = winograd};
  }
};

/// Returns, for each value, true if its bytes are in host memory because a transfer op reads or writes them
/// there.
std::vector<char> on_host(const Graph& graph);

/// Returns the cost of one run of the node: OpDef::cost, or if the op has none, the bytes of inputs and
/// outputs.
Cost cost_of(const Graph& graph, const Node& node);

}  // namespace hearth::ir
