#pragma once

#include <optional>

#include "arena/problem.h"
#include "arena/search.h"

namespace hearth::arena {

/// Lowers a valid solution by exact search (Search), piece by piece. Target heights: `capacity` if given,
/// otherwise 1% above the lower bound and the bound itself; then bisection. Each search gets a share of the
/// remaining budget. Raises proven_bound if every lower height was searched exhaustively.
void improve(const Problem& problem, std::optional<int64_t> capacity, const Budget& budget,
             Solution& solution);

}  // namespace hearth::arena
