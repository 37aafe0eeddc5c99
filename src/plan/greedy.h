#pragma once

#include "plan/problem.h"

namespace hearth::plan {

/// The best of several orders (size, lifetime, area, start) x placements (first fit, best fit).
Solution solve_greedy(const Problem& problem, const SolveOptions& options);

}  // namespace hearth::plan
