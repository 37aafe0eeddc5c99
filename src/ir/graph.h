#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "ir/attrs.h"

namespace hearth::ir {

struct OpDef;

/// Indices into Graph::values and Graph::nodes. kNone marks an absent value (an optional input, no producer).
using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr int32_t kNone = -1;

/// Where a value or node stands in an array of all of them.
inline size_t index(int32_t id) { return static_cast<size_t>(id); }

/// Where a value's bytes live and who writes them.
enum class Role : uint8_t {
  activation,  ///< made by a node; lives in the arena from its producer to its last reader
  input,       ///< written by the caller before each run (images, labels): staging
  scalar,      ///< one f32 written by the caller before each run (learning rate, loss scale)
  parameter,   ///< trainable weight: persistent
  state,       ///< persistent, not trained (momentum, running mean)
  frozen,      ///< weight that nothing writes while training runs: persistent, in no checkpoint
  remote,      ///< state of another worker: has a place where all states are gathered, no bytes on the device
  carried,     ///< persistent between the programs of one update (gradient sums), in no checkpoint
};
std::string_view role_name(Role role);
/// Whether such a value lives in the persistent region.
constexpr bool is_persistent(Role role) { return role >= Role::parameter; }

/// dtype and shape of a value.
struct Type {
  DType dtype = DType::f32;
  Shape shape;
  int64_t num_bytes() const { return shape.num_elements() * dtype_bytes(dtype); }
  bool operator==(const Type&) const = default;
};

struct Value {
  std::string name;
  Type type;
  Role role = Role::activation;
  NodeId producer = kNone;
};

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

}  // namespace hearth::ir
