#pragma once

#include <cstdint>
#include <optional>

#include "arena/problem.h"

namespace hearth::arena {

/// Limits and options of solve().
struct SolveOptions {
  /// Max height in bytes: the search stops at the first solution within it. nullopt: minimizes the height.
  std::optional<int64_t> capacity = std::nullopt;
  /// Time limit for the greedy orders and the exact search together. If it is too short for both, the result
  /// is that of sweep().
  double seconds = 5;
  /// Max number of steps of the exact search (arena/search.h). The result does not depend on the machine if
  /// this limit ends the search before the time limit does.
  std::optional<int64_t> steps = std::nullopt;
  /// Enables the exact search; disabled in tests.
  bool use_exact = true;
};

/// Solves a packing problem by a portfolio of greedy orders, then exact search (arena/search.h) until the
/// lower bound, the capacity or the deadline is reached. Returns the best solution found, even if it exceeds
/// the capacity. Deterministic unless the deadline ends the search. InternalError for an invalid buffer.
Solution solve(const Problem& problem, const SolveOptions& options = {});

}  // namespace hearth::arena
