#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/graph.h"

namespace hearth::passes {

/// Index of the nodes that read each value, in node order.
class Readers {
 public:
  Readers() = default;
  /// Builds the index for the current nodes of the graph. It does not follow later changes.
  explicit Readers(const ir::Graph& graph);
  std::span<const ir::NodeId> operator[](ir::ValueId id) const {
    const auto index = static_cast<size_t>(id);
    return {nodes_.data() + begin_[index], static_cast<size_t>(begin_[index + 1] - begin_[index])};
  }

 private:
  std::vector<int64_t> begin_;  ///< for each value, its first index in nodes_
  std::vector<ir::NodeId> nodes_;
};

/// Reorders the nodes. `order` has each node index once.
void reorder(ir::Graph& graph, std::span<const ir::NodeId> order);

/// Sorts the nodes by place[index of the node]; nodes with the same place keep their order.
void sort_by_place(ir::Graph& graph, std::span<const size_t> place);

/// Moves each node from index `first` on to the earliest position at which its inputs have been computed and
/// the values that it overwrites have been read. Other nodes keep their order.
void hoist(ir::Graph& graph, size_t first);

/// Returns an input of a node; kNone if the input is absent.
ir::ValueId input_or_none(const ir::Node& node, size_t index);
ir::ValueId input_or_none(const ir::Node& node, std::string_view name);
/// Returns, for each value, 1 if it depends on a parameter through floating-point values (integers have no
/// gradient).
std::vector<char> depend_on_parameters(const ir::Graph& graph);
/// True if the node applies an activation function (relu) to its result before storing it.
bool has_activation(const ir::Node& node);

/// True if `id` is produced by a node of the op with that name.
bool is_produced_by(const ir::Graph& graph, ir::ValueId id, std::string_view op_name);

}  // namespace hearth::passes
