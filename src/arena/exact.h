#pragma once

#include <optional>

#include "arena/problem.h"
#include "arena/search.h"

namespace hearth::arena {

/// Lowers a valid solution by Search, piece by piece: at the capacity where one is given, else at 1% above
/// the bound and at the bound, then by bisection below the height; each gets a share of the budget left.
/// Raises proven_bound where everything below it was searched in full.
void improve(const Problem& problem, std::optional<int64_t> capacity, const Budget& budget,
             Solution& solution);

}  // namespace hearth::arena
