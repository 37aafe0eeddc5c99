#pragma once

#include "plan/problem.h"
#include "plan/search.h"

namespace hearth::plan {

/// Lowers a valid solution by Search, piece by piece: at the capacity alone where one is given, else at the
/// bound, at 1% above it, then by bisection below the height; each gets a share of the time left. Sets
/// proven_optimal where the height is the bound or everything below it was searched in full.
void improve(const Problem& problem, const SolveOptions& options, TimePoint deadline, Solution& solution);

}  // namespace hearth::plan
