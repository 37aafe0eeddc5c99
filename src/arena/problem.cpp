#include "arena/problem.h"

#include <algorithm>
#include <utility>

namespace hearth::arena {

int64_t lower_bound(const Problem& problem) {
  std::vector<std::pair<int64_t, int64_t>> events;
  for (const Buffer& buffer : problem.buffers) {
    events.emplace_back(buffer.lower, buffer.size);
    events.emplace_back(buffer.upper, -buffer.size);
  }
  std::sort(events.begin(), events.end());
  int64_t live = 0;
  int64_t max_live = 0;
  for (const auto& [time, change] : events) {
    live += change;
    max_live = std::max(max_live, live);
  }
  return max_live;
}

}  // namespace hearth::arena
