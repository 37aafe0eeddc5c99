#include "ir/op_def.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace hearth::ir {
namespace {

std::string_view without_mark(std::string_view name) {
  if (name.ends_with('?') || name.ends_with('+')) name.remove_suffix(1);
  return name;
}

}  // namespace

std::string_view OpDef::input_name(size_t index) const {
  HEARTH_CHECK(!inputs.empty());
  return without_mark(inputs[std::min(index, inputs.size() - 1)]);
}

size_t OpDef::input_index(std::string_view input) const {
  const auto found = std::ranges::find(inputs, input, without_mark);
  if (found == inputs.end()) internal_error("{} has no input '{}'", name, input);
  return static_cast<size_t>(found - inputs.begin());
}

std::string OpDef::inputs_error(std::span<const ValueId> given) const {
  const bool repeats = !inputs.empty() && inputs.back().ends_with('+');
  const size_t max_count = repeats ? max_inputs : inputs.size();
  const auto count = [&] {
    return fmt::format("expected inputs ({}), got {}", fmt::join(inputs, ", "), given.size());
  };
  if (given.size() > max_count) return fmt::format("{}: {}", name, count());
  for (size_t i = 0; i < std::max(given.size(), inputs.size()); ++i) {
    if (!is_optional(i) && (i >= given.size() || given[i] == kNone))
      return fmt::format("{}: input '{}' is missing: {}", name, input_name(i), count());
  }
  return "";
}

}  // namespace hearth::ir
