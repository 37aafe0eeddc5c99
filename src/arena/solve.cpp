#include "arena/solve.h"

#include <algorithm>
#include <chrono>

#include "arena/exact.h"
#include "arena/greedy.h"
#include "base/error.h"

namespace hearth::arena {
namespace {

constexpr double kLongestSeconds = 1e8;

void check(const Problem& problem) {
  int64_t total = 0;
  for (const Buffer& buffer : problem.buffers) {
    HEARTH_CHECK(buffer.lower < buffer.upper && buffer.alignment >= 1);
    HEARTH_CHECK(buffer.size >= 0 && buffer.size <= kMaxProblemBytes - total);
    total += buffer.size;
  }
}

}  // namespace

Solution solve(const Problem& problem, const SolveOptions& options) {
  check(problem);
  const auto start = std::chrono::steady_clock::now();
  const std::chrono::duration<double> time(std::clamp(options.seconds, 0.0, kLongestSeconds));
  const TimePoint deadline = start + std::chrono::duration_cast<TimePoint::duration>(time);
  Solution solution = solve_greedy(problem, options.capacity, deadline);
  const int64_t target = std::max(solution.lower_bound, options.capacity.value_or(0));
  solution.proven_bound = solution.lower_bound;
  // A capacity below the lower bound cannot be met and would only waste the search budget.
  const bool is_within_reach = options.capacity && *options.capacity >= solution.lower_bound;
  const bool has_time = std::chrono::steady_clock::now() < deadline;
  if (options.use_exact && has_time && solution.height > target) {
    const Budget budget{.steps = options.steps.value_or(INT64_MAX), .deadline = deadline};
    improve(problem, is_within_reach ? options.capacity : std::nullopt, budget, solution);
  }
  solution.proven_optimal = solution.height == solution.proven_bound;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  solution.seconds = seconds.count();
  return solution;
}

}  // namespace hearth::arena
