#pragma once

#include <cstdint>
#include <optional>

#include "arena/problem.h"

namespace hearth::arena {

struct SolveOptions {
  /// Stop as soon as the height is within it.
  std::optional<int64_t> capacity = std::nullopt;
  /// For greedy orders and exact search together. Where it is too short for any of them, the answer is that
  /// of arena/sweep.h.
  double seconds = 5;
  /// Most steps of the exact search (arena/search.h). Where these end it and not the time, the answer does
  /// not depend on the machine.
  std::optional<int64_t> steps = std::nullopt;
  /// Each technique can be switched off for tests; answers stay valid.
  bool use_exact = true;
};

/// A portfolio of greedy orders, then exact search (arena/search.h) until the bound, the capacity or the
/// deadline is met. The best answer so far is always returned, also when it is above the capacity. The same
/// problem gets the same answer, unless the deadline cut the search short. InternalError for a broken buffer.
Solution solve(const Problem& problem, const SolveOptions& options = {});

}  // namespace hearth::arena
