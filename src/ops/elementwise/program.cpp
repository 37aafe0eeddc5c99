#include "ops/elementwise/program.h"

#include <charconv>

#include "base/error.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/formulas.h"

namespace hearth::ops {
namespace {

std::string print_operand(int operand) {
  return operand >= 0 ? fmt::format("i{}", operand) : fmt::format("t{}", -1 - operand);
}

int parse_operand(std::string_view text) {
  int index = 0;
  const char kind = text.empty() ? ' ' : text[0];
  const auto [end, error] = std::from_chars(text.data() + 1, text.data() + text.size(), index);
  if (error != std::errc() || (kind != 'i' && kind != 't'))
    internal_error("invalid operand '{}' in a program of fused_elementwise", text);
  return kind == 'i' ? index : -1 - index;
}

ElementwiseStep parse_step(std::string_view text) {
  const size_t open = text.find('(');
  if (open == std::string_view::npos || text.back() != ')')
    internal_error("invalid step '{}' in a program of fused_elementwise", text);
  ElementwiseStep step{.op = &elementwise_op(text.substr(0, open))};
  std::string_view rest = text.substr(open + 1, text.size() - open - 2);
  for (size_t position = 0; !rest.empty(); ++position) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    if (position < step.op->inputs.size()) {
      step.operands[position] = parse_operand(item);
    } else {
      std::from_chars(item.data(), item.data() + item.size(), step.parameter);
    }
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return step;
}

}  // namespace

std::string print_program(const std::vector<ElementwiseStep>& steps) {
  std::string text;
  for (const ElementwiseStep& step : steps) {
    text += fmt::format("{}{}({}", text.empty() ? "" : ";", step.op->name, print_operand(step.operands[0]));
    if (step.op->inputs.size() > 1) text += "," + print_operand(step.operands[1]);
    if (step.parameter != 0) text += fmt::format(",{}", step.parameter);
    text += ")";
  }
  return text;
}

std::vector<ElementwiseStep> parse_program(std::string_view text) {
  std::vector<ElementwiseStep> steps;
  while (!text.empty()) {
    const size_t end = std::min(text.find(';'), text.size());
    steps.push_back(parse_step(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return steps;
}

float elementwise_parameter(const ir::OpDef&, const ir::Attrs& attrs) {
  return static_cast<float>(formula_parameter(attrs));
}

}  // namespace hearth::ops
