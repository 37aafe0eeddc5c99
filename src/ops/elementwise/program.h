#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ops {

/// What fused_elementwise takes.
inline constexpr int kMaxInputs = 8;
inline constexpr int kMaxSteps = 16;

/// A chain of elementwise ops over shared tiles. Text form, the "program" attribute of fused_elementwise:
///   "add(i0,i1);relu(t0);scale(t1,0.5)"  inputs i0.., results t0.. in order, the last one is the output.
struct ElementwiseStep {
  const ir::OpDef* op = nullptr;
  /// Operands: input index, or -1 - step index; the second is unused by unary ops.
  int operands[2] = {0, 0};
  float parameter = 0;
};

std::string print_program(const std::vector<ElementwiseStep>& steps);
/// InternalError for a malformed program.
std::vector<ElementwiseStep> parse_program(std::string_view text);

/// The constant of a scale or add_scalar node; 0 for other ops.
float elementwise_parameter(const ir::OpDef& op, const ir::Attrs& attrs);

}  // namespace hearth::ops
