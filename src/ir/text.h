#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace hearth::ir {

/// Returns the text form of a graph. Round trip: print(parse(print(g))) == print(g).
///   parameter %0 "fc.weight" : f32[10, 4096]
///   %5 = matmul(%3, %0) {transpose_b=1} : f32[32, 10]  # fc
///   return %5
std::string print(const Graph& graph);
/// Returns the line of a node in the text form.
std::string print_node(const Graph& graph, NodeId id);
/// Returns " {key=value, ...}", or an empty string without attributes.
std::string print(const Attrs& attrs);

/// Parses the text form. `find_op` returns the record of an op by name, or null. UserError with "line
/// N" for invalid text.
Graph parse(std::string_view text, const std::function<const OpDef*(std::string_view)>& find_op);

}  // namespace hearth::ir
