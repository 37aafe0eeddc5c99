#pragma once

#include <string>
#include <string_view>

#include "ir/text.h"
#include "ops/op_list.h"

namespace hearth {

inline ir::Graph graph_of(std::string_view text) { return ir::parse(text, ops::find_op); }

/// The text with values numbered in the order they are listed, so that graphs can be compared.
inline std::string renumbered(const ir::Graph& graph) { return ir::print(graph_of(ir::print(graph))); }
inline std::string renumbered(std::string_view text) { return renumbered(graph_of(text)); }

}  // namespace hearth
