#include "plan/validate.h"

#include <fmt/format.h>

#include <algorithm>

namespace hearth::plan {

std::optional<std::string> validate(const Problem& problem, const Solution& solution) {
  const auto& buffers = problem.buffers;
  if (solution.offsets.size() != buffers.size())
    return "the number of offsets differs from the number of buffers";
  int64_t height = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const int64_t begin = solution.offsets[i];
    const int64_t end = begin + buffers[i].size;
    if (begin < 0 || begin % buffers[i].alignment != 0)
      return fmt::format("buffer {} has a bad offset {}", i, begin);
    height = std::max(height, end);
    for (size_t j = 0; j < i; ++j) {
      const bool same_time = buffers[i].lower < buffers[j].upper && buffers[j].lower < buffers[i].upper;
      const bool same_bytes = begin < solution.offsets[j] + buffers[j].size && solution.offsets[j] < end;
      if (same_time && same_bytes) return fmt::format("buffers {} and {} overlap", j, i);
    }
  }
  if (height != solution.height) return fmt::format("the height is {}, not {}", height, solution.height);
  return std::nullopt;
}

}  // namespace hearth::plan
