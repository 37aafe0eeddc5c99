#pragma once

#include <optional>
#include <string>

#include "arena/problem.h"

namespace hearth::arena {

/// Checks a solution in time n log n; shares no code with the solvers. The first fault in words, or nothing.
std::optional<std::string> validate(const Problem& problem, const Solution& solution);

}  // namespace hearth::arena
