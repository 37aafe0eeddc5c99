#pragma once

#include <cstdint>
#include <optional>

#include "arena/problem.h"

namespace hearth::arena {

/// Limits and options of solve().
struct SolveOptions {
  /// Height in bytes at which to stop.
  std::optional<int64_t> capacity = std::nullopt;
  /// Time limit for greedy orders and exact search together. If it is too short for either, the result is
  /// that of sweep().
  double seconds = 5;
  /// Maximum steps of the exact search (arena/search.h). If this limit applies rather than the time limit,
  /// the result does not depend on the machine.
  std::optional<int64_t> steps = std::nullopt;
  /// Enables the exact search; disabled in tests.
  bool use_exact = true;
};

/// Solves a packing problem by a portfolio of greedy orders, then exact search (arena/search.h) until the
/// lower bound, the capacity or the deadline is reached. Returns the best solution found, even if it exceeds
/// the capacity. Deterministic unless the deadline ends the search. InternalError for an invalid buffer.
Solution solve(const Problem& problem, const SolveOptions& options = {});

}  // namespace hearth::arena
