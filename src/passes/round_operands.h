#pragma once

#include "ir/graph.h"

namespace hearth::passes {

/// Rounds the operands of each matmul with the attribute ops::kOperandPrecision to E4M3 values
/// (ops/matmul/round_e4m3.h), and removes the attribute. Operand b is a weight. Matmuls of the same pass
/// share a rounded operand.
void round_operands(ir::Graph& graph);

}  // namespace hearth::passes
