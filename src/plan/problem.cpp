#include "plan/problem.h"

#include <algorithm>
#include <chrono>

#include "plan/greedy.h"

namespace hearth::plan {

int64_t lower_bound(const Problem& problem) {
  std::vector<std::pair<int64_t, int64_t>> events;
  for (const Buffer& buffer : problem.buffers) {
    events.emplace_back(buffer.lower, buffer.size);
    events.emplace_back(buffer.upper, -buffer.size);
  }
  std::sort(events.begin(), events.end());
  int64_t live = 0;
  int64_t most = 0;
  for (const auto& [time, change] : events) {
    live += change;
    most = std::max(most, live);
  }
  return most;
}

Solution solve(const Problem& problem, const SolveOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Solution solution = solve_greedy(problem, options);
  solution.proven_optimal = solution.height == solution.lower_bound;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  solution.seconds = seconds.count();
  return solution;
}

}  // namespace hearth::plan
