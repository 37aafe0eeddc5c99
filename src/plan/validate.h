#pragma once

#include <optional>
#include <string>

#include "plan/problem.h"

namespace hearth::plan {

/// Checks a solution in time n log n; shares no code with the solvers. The first fault in words, or nothing.
std::optional<std::string> validate(const Problem& problem, const Solution& solution);

}  // namespace hearth::plan
