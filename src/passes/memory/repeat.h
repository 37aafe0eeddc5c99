#pragma once

#include <vector>

#include "ir/graph.h"

namespace hearth::passes {

/// True if the value can be recomputed, by its producer or by the node of OpDef::repeat.
bool can_repeat(const ir::Graph& graph, ir::ValueId value);
/// Returns the node that recomputes `value`, an output of `producer`, without outputs.
ir::Node repeat_node(const ir::Node& producer, ir::ValueId value);
/// Returns the inputs of the node that recomputes `value`.
std::vector<ir::ValueId> repeat_inputs(const ir::Graph& graph, ir::ValueId value);
/// Completes `copy`, a repeat_node() of `original` that has its first output: adds values that nothing reads
/// as outputs 1 and up, unless its op can recompute a single output (OpDef::repeat_output).
void add_other_outputs(ir::Graph& graph, const ir::Node& original, ir::Node& copy);

/// Returns, for each value, the node that overwrites it; the number of nodes if none does. Nodes after that
/// cannot be recomputed from the value; for example, the backward pass may update a weight.
std::vector<ir::NodeId> overwriting_nodes(const ir::Graph& graph);

}  // namespace hearth::passes
