#pragma once

#include "plan/problem.h"
#include "plan/search.h"

namespace hearth::plan {

/// The best of several orders (size, lifetime, area, start) x placements (first fit, best fit). What the
/// first of them has not placed at the deadline is put on top.
Solution solve_greedy(const Problem& problem, const SolveOptions& options, TimePoint deadline);

}  // namespace hearth::plan
