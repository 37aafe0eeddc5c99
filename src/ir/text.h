#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace hearth::ir {

/// The text form of a graph; parse(print(g)) prints the same text again:
///   parameter %0 "fc.weight" : f32[10, 4096]
///   %5 = matmul(%3, %0) {transpose_b=1} : f32[32, 10]  # fc
///   return %5
std::string print(const Graph& graph);
std::string print_node(const Graph& graph, NodeId id);
/// " {key=value, ...}", or nothing where there are none.
std::string print(const Attrs& attrs);

/// Reads the text form. `find_op` maps a name to its record or null. Mistakes are UserErrors with "line N".
Graph parse(std::string_view text, const std::function<const OpDef*(std::string_view)>& find_op);

}  // namespace hearth::ir
