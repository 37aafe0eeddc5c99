#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace hearth::ir {

/// Returns a graph as text, which parse() reads: print(parse(print(g))) == print(g).
///   parameter %0 "fc.weight" : f32[10, 4096]
///   %5 = matmul(%3, %0) {transpose_b=1} : f32[32, 10]  # fc
///   return %5
std::string print(const Graph& graph);
/// Returns the line of a node in the text form.
std::string print_node(const Graph& graph, NodeId id);
/// Returns the attributes as " {key=value, ...}", or an empty string if there are none.
std::string print(const Attrs& attrs);

/// Parses the text of a graph. `find_op` returns the op with a name, or null. Throws a UserError with "line
/// N" for invalid text.
Graph parse(std::string_view text, const std::function<const OpDef*(std::string_view)>& find_op);

}  // namespace hearth::ir
