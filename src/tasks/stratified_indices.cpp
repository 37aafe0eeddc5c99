#include "tasks/stratified_indices.h"

#include <algorithm>

#include "base/philox.h"

namespace hearth::tasks {

std::vector<int64_t> stratified_indices(int64_t count, int64_t size) {
  count = std::min(count, size);
  PhiloxSequence random(0, 0);
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) {
    const double at = static_cast<double>(i) + random.uniform();
    chosen.push_back(static_cast<int64_t>(at * static_cast<double>(size) / static_cast<double>(count)));
  }
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

}  // namespace hearth::tasks
