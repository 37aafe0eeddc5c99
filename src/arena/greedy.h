#pragma once

#include <optional>

#include "arena/problem.h"
#include "arena/search.h"

namespace hearth::arena {

/// The best of several orders (size, lifetime, area, start) x placements (first fit, best fit), as many as
/// the deadline allows, and of arena/sweep.h.
Solution solve_greedy(const Problem& problem, std::optional<int64_t> capacity, TimePoint deadline);

}  // namespace hearth::arena
