#pragma once

#include "plan/problem.h"
#include "plan/search.h"

namespace hearth::plan {

/// The best of several orders (size, lifetime, area, start) x placements (first fit, best fit), as many as
/// the deadline allows, and of plan/sweep.h.
Solution solve_greedy(const Problem& problem, const SolveOptions& options, TimePoint deadline);

}  // namespace hearth::plan
