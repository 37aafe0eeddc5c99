#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace hearth::passes {

/// For each value, the nodes that read it, in order.
class Readers {
 public:
  Readers() = default;
  explicit Readers(const ir::Graph& graph);
  std::span<const ir::NodeId> operator[](ir::ValueId id) const {
    const auto index = static_cast<size_t>(id);
    return {nodes_.data() + begin_[index], static_cast<size_t>(begin_[index + 1] - begin_[index])};
  }

 private:
  std::vector<int64_t> begin_;  ///< of each value in nodes_
  std::vector<ir::NodeId> nodes_;
};

/// Puts the nodes into the order of their numbers in `order`, which has each once.
void reorder(ir::Graph& graph, std::span<const ir::NodeId> order);

/// Moves each node from number `first` on to where everything it needs has been made and nothing reads any
/// more what it overwrites. Keeps the order of all others.
void hoist(ir::Graph& graph, size_t first);

/// An input of a node, kNone where it is absent or left out at the end.
ir::ValueId input_or_none(const ir::Node& node, size_t index);
ir::ValueId input_or_none(const ir::Node& node, std::string_view name);
/// For each value, whether parameters have a part in it other than through whole numbers, which have no
/// gradient.
std::vector<char> depend_on_parameters(const ir::Graph& graph);
/// Whether something is done to the node's result before it is stored: relu.
bool has_activation(const ir::Node& node);

/// Whether `id` is an activation made by a node of the op with that name.
bool is_made_by(const ir::Graph& graph, ir::ValueId id, std::string_view op_name);

}  // namespace hearth::passes
