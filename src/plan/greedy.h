#pragma once

#include "plan/problem.h"
#include "plan/search.h"

namespace hearth::plan {

/// The best of several orders (size, lifetime, area, start) x placements (first fit, best fit). The first of
/// them is finished whatever the deadline.
Solution solve_greedy(const Problem& problem, const SolveOptions& options, TimePoint deadline);

}  // namespace hearth::plan
