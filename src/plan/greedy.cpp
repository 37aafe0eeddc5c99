#include "plan/greedy.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

namespace hearth::plan {
namespace {

enum class Fit : uint8_t { first, best };
using Key = int64_t (*)(const Buffer&);

constexpr std::array<Key, 5> kKeys = {
    [](const Buffer& b) { return b.size; },
    [](const Buffer& b) { return b.upper - b.lower; },
    [](const Buffer& b) { return b.size * (b.upper - b.lower); },
    [](const Buffer& b) { return -b.lower; },
    [](const Buffer& b) { return b.upper; },
};

int64_t aligned(int64_t offset, int64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

/// Places buffers one by one into the lowest (or tightest) gap between those alive at the same time.
class Placer {
 public:
  Placer(const Problem& problem, const std::vector<std::vector<int>>& conflicts)
      : problem_(problem), conflicts_(conflicts), offsets_(problem.buffers.size(), -1) {}

  Solution run(const std::vector<int>& order, Fit fit) {
    Solution solution;
    for (const int index : order) {
      const auto i = static_cast<size_t>(index);
      offsets_[i] = find_offset(i, fit);
      solution.height = std::max(solution.height, offsets_[i] + problem_.buffers[i].size);
    }
    solution.offsets = offsets_;
    return solution;
  }

 private:
  int64_t find_offset(size_t i, Fit fit) {
    const Buffer& buffer = problem_.buffers[i];
    busy_.clear();
    for (const int other : conflicts_[i]) {
      const auto j = static_cast<size_t>(other);
      if (offsets_[j] >= 0) busy_.emplace_back(offsets_[j], offsets_[j] + problem_.buffers[j].size);
    }
    std::sort(busy_.begin(), busy_.end());
    int64_t top = 0;
    int64_t best = -1;
    int64_t best_gap = INT64_MAX;
    for (const auto& [begin, end] : busy_) {
      const int64_t start = aligned(top, buffer.alignment);
      if (begin - start >= buffer.size && begin - top < best_gap) {
        best = start;
        best_gap = begin - top;
        if (fit == Fit::first) return best;
      }
      top = std::max(top, end);
    }
    return best >= 0 ? best : aligned(top, buffer.alignment);
  }

  const Problem& problem_;
  const std::vector<std::vector<int>>& conflicts_;
  std::vector<int64_t> offsets_;
  std::vector<std::pair<int64_t, int64_t>> busy_;
};

std::vector<std::vector<int>> find_conflicts(const Problem& problem) {
  const auto& buffers = problem.buffers;
  std::vector<std::vector<int>> conflicts(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (buffers[i].lower >= buffers[j].upper || buffers[j].lower >= buffers[i].upper) continue;
      conflicts[i].push_back(static_cast<int>(j));
      conflicts[j].push_back(static_cast<int>(i));
    }
  }
  return conflicts;
}

}  // namespace

Solution solve_greedy(const Problem& problem, const SolveOptions& options) {
  const int64_t bound = lower_bound(problem);
  const int64_t target = std::max(bound, options.capacity.value_or(bound));
  const auto conflicts = find_conflicts(problem);
  Solution best{.offsets = {}, .height = INT64_MAX, .lower_bound = bound};
  std::vector<int> order(problem.buffers.size());
  for (const Key key : kKeys) {
    std::iota(order.begin(), order.end(), 0);
    const auto before = [&](int a, int b) {
      return key(problem.buffers[static_cast<size_t>(a)]) > key(problem.buffers[static_cast<size_t>(b)]);
    };
    std::stable_sort(order.begin(), order.end(), before);
    for (const Fit fit : {Fit::first, Fit::best}) {
      Solution solution = Placer(problem, conflicts).run(order, fit);
      if (solution.height >= best.height) continue;
      best.height = solution.height;
      best.offsets = std::move(solution.offsets);
      if (best.height <= target) return best;
    }
  }
  return best;
}

}  // namespace hearth::plan
