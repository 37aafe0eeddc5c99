#include "arena/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace hearth::arena {
namespace {

/// Sweeps over time with the live buffers sorted by offset: if any two overlap, two neighbors overlap when
/// the later one starts.
std::optional<std::string> find_overlap(const Problem& problem, const Solution& solution) {
  std::vector<std::tuple<int64_t, bool, size_t>> events;  // ends sort before starts
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    if (problem.buffers[i].size == 0) continue;
    events.emplace_back(problem.buffers[i].lower, true, i);
    events.emplace_back(problem.buffers[i].upper, false, i);
  }
  std::sort(events.begin(), events.end());
  std::map<int64_t, size_t> alive;
  const auto end_of = [&](size_t i) { return solution.offsets[i] + problem.buffers[i].size; };
  for (const auto& [time, starts, i] : events) {
    if (!starts) {
      alive.erase(solution.offsets[i]);
      continue;
    }
    const auto above = alive.lower_bound(solution.offsets[i]);
    const bool hits_above = above != alive.end() && above->first < end_of(i);
    const bool hits_below = above != alive.begin() && end_of(std::prev(above)->second) > solution.offsets[i];
    if (hits_above || hits_below) {
      const size_t other = hits_above ? above->second : std::prev(above)->second;
      return fmt::format("buffers {} and {} overlap", std::min(i, other), std::max(i, other));
    }
    alive.emplace(solution.offsets[i], i);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> validate(const Problem& problem, const Solution& solution) {
  const auto& buffers = problem.buffers;
  if (solution.offsets.size() != buffers.size())
    return "the number of offsets differs from the number of buffers";
  int64_t height = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const int64_t begin = solution.offsets[i];
    if (begin < 0 || begin % buffers[i].alignment != 0)
      return fmt::format("buffer {} has a bad offset {}", i, begin);
    height = std::max(height, begin + buffers[i].size);
  }
  if (auto overlap = find_overlap(problem, solution)) return overlap;
  if (height != solution.height) return fmt::format("the height is {}, not {}", height, solution.height);
  return std::nullopt;
}

}  // namespace hearth::arena
