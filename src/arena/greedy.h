#pragma once

#include <optional>

#include "arena/problem.h"
#include "arena/search.h"

namespace hearth::arena {

/// Returns the best solution of several orders (by size, lifetime, area, start) and placements (first fit,
/// best fit), as many as the deadline allows, and of sweep().
Solution solve_greedy(const Problem& problem, std::optional<int64_t> capacity, TimePoint deadline);

}  // namespace hearth::arena
