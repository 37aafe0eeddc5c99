#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ops {

/// Maximum number of inputs and steps of fused_elementwise.
inline constexpr int kMaxInputs = 8;
inline constexpr int kMaxSteps = 16;

/// A step of a chain of elementwise ops. The attribute "program" of fused_elementwise has the text form of a
/// chain:
///   "add(i0,i1);relu(t0);scale(t1,0.5)"  inputs i0.., results t0.. in order; the last result is the output.
struct ElementwiseStep {
  const ir::OpDef* op = nullptr;
  /// Operands: k >= 0 is input k; -1 - s is the result of step s. Unary ops do not use the second.
  int operands[2] = {0, 0};
  float parameter = 0;
};

std::string print_program(const std::vector<ElementwiseStep>& steps);
/// Parses the text form of a chain; InternalError if it is malformed.
std::vector<ElementwiseStep> parse_program(std::string_view text);

/// Returns the constant of a scale or add_scalar node; 0 for other ops.
float elementwise_parameter(const ir::OpDef& op, const ir::Attrs& attrs);

}  // namespace hearth::ops
