#pragma once

#include <optional>
#include <string>

#include "arena/problem.h"

namespace hearth::arena {

/// Checks a solution in O(n log n). Independent of the solvers' code. Returns a description of the first
/// error, nullopt if valid.
std::optional<std::string> validate(const Problem& problem, const Solution& solution);

}  // namespace hearth::arena
