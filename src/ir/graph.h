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

/// An application of an op to input values, which produces output values.
struct Node {
  const OpDef* op = nullptr;
  std::vector<ValueId> inputs;  ///< kNone for an absent optional input
  std::vector<ValueId> outputs;
  Attrs attrs;
  std::string name;  ///< name of the layer, for error messages: "layer1.0.conv1"
};

/// A directed acyclic graph of nodes, stored in a valid execution order. A node may write one of its
/// inputs in place (OpDef::writes): the output is then a new name for the same bytes, and no later node
/// may read the old name.
class Graph {
 public:
  std::vector<Value> values;
  std::vector<Node> nodes;
  /// Values that the caller reads after a run; they stay alive until the end.
  std::vector<ValueId> outputs;

  /// Adds a value without a producer and returns its id.
  ValueId add_value(std::string name, Type type, Role role);
  /// Appends a node: infers the types of its outputs and creates them. UserError with the node's name if the
  /// op rejects its inputs.
  std::vector<ValueId> add(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {},
                           std::string name = "");
  /// Appends a node of an op with exactly one output and returns that output.
  ValueId add1(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {}, std::string name = "");

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<size_t>(id)]; }
  const Type& type(ValueId id) const { return value(id).type; }
  /// Returns the value with that name; nullopt if there is none.
  std::optional<ValueId> find(std::string_view name) const;
  /// Returns the types of a node's inputs; an absent input has a default-constructed Type.
  std::vector<Type> input_types(const Node& node) const;

  /// Returns for each value the number of nodes that read it; graph outputs count as one more reader.
  std::vector<int> use_counts() const;
  /// Removes nodes whose results are never used and updates producers; values keep their ids.
  void remove_dead_nodes();
  /// Updates the `producer` fields after nodes were reordered, inserted or erased.
  void relink();
};

/// Storage for the input and output types of a node, which a NodeView refers to.
struct NodeTypes {
  std::vector<Type> in;
  std::vector<Type> out;

  NodeTypes(const Graph& graph, const Node& node);
  NodeView view(const Node& node, int num_threads = 1, bool winograd = true) const {
    return {.attrs = node.attrs, .in = in, .out = out, .num_threads = num_threads, .winograd = winograd};
  }
};

/// Returns for each value true if its bytes are in host memory, because a transfer op reads or
/// writes it there.
std::vector<char> on_host(const Graph& graph);

/// Returns the cost of one run of the node, by OpDef::cost if the op has one.
Cost cost_of(const Graph& graph, const Node& node);

}  // namespace hearth::ir
