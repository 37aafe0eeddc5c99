#include "plan/greedy.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace hearth::plan {
namespace {

enum class Fit : uint8_t { first, best };
using Key = double (*)(const Buffer&);

double size_of(const Buffer& buffer) { return static_cast<double>(buffer.size); }

double lifetime_of(const Buffer& buffer) {
  return static_cast<double>(buffer.upper) - static_cast<double>(buffer.lower);
}

constexpr std::array<Key, 5> kKeys = {
    size_of,
    lifetime_of,
    [](const Buffer& b) { return size_of(b) * lifetime_of(b); },
    [](const Buffer& b) { return -static_cast<double>(b.lower); },
    [](const Buffer& b) { return static_cast<double>(b.upper); },
};

int64_t aligned(int64_t offset, int64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

/// Places buffers one by one into the lowest (or tightest) gap between those alive at the same time.
class Placer {
 public:
  explicit Placer(const Problem& problem) : problem_(problem) { placed_.reserve(problem.buffers.size()); }

  /// False if the deadline came first.
  bool run(const std::vector<int>& order, Fit fit, TimePoint deadline, Solution& solution) {
    placed_.clear();
    solution.height = 0;
    solution.offsets.resize(problem_.buffers.size());
    for (const int index : order) {
      const Buffer& buffer = problem_.buffers[static_cast<size_t>(index)];
      const int64_t begin = find_offset(buffer, fit);
      const Placed placed{
          .begin = begin, .end = begin + buffer.size, .lower = buffer.lower, .upper = buffer.upper};
      placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), placed), placed);
      solution.offsets[static_cast<size_t>(index)] = begin;
      solution.height = std::max(solution.height, placed.end);
      if (placed_.size() % 256 == 0 && std::chrono::steady_clock::now() >= deadline) return false;
    }
    return true;
  }

 private:
  struct Placed {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t lower = 0;
    int64_t upper = 0;
    bool operator<(const Placed& other) const { return begin < other.begin; }
  };

  int64_t find_offset(const Buffer& buffer, Fit fit) const {
    int64_t top = 0;
    int64_t best = -1;
    int64_t best_gap = INT64_MAX;
    for (const Placed& other : placed_) {
      if (other.lower >= buffer.upper || buffer.lower >= other.upper) continue;
      const int64_t start = aligned(top, buffer.alignment);
      if (other.begin - start >= buffer.size && other.begin - top < best_gap) {
        best = start;
        best_gap = other.begin - top;
        if (fit == Fit::first) return best;
      }
      top = std::max(top, other.end);
    }
    return best >= 0 ? best : aligned(top, buffer.alignment);
  }

  const Problem& problem_;
  /// By begin.
  std::vector<Placed> placed_;
};

std::vector<int> order_by(const Problem& problem, Key key) {
  std::vector<int> order(problem.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int a, int b) {
    return key(problem.buffers[static_cast<size_t>(a)]) > key(problem.buffers[static_cast<size_t>(b)]);
  };
  std::stable_sort(order.begin(), order.end(), before);
  return order;
}

}  // namespace

Solution solve_greedy(const Problem& problem, const SolveOptions& options, TimePoint deadline) {
  const int64_t bound = lower_bound(problem);
  const int64_t target = std::max(bound, options.capacity.value_or(bound));
  Solution best{.offsets = {}, .height = INT64_MAX, .lower_bound = bound};
  Placer placer(problem);
  Solution solution;
  for (const Key key : kKeys) {
    const std::vector<int> order = order_by(problem, key);
    for (const Fit fit : {Fit::first, Fit::best}) {
      const bool is_first = best.height == INT64_MAX;
      if (!placer.run(order, fit, is_first ? TimePoint::max() : deadline, solution)) return best;
      if (solution.height >= best.height) continue;
      best.height = solution.height;
      best.offsets = solution.offsets;
      if (best.height <= target) return best;
    }
  }
  return best;
}

}  // namespace hearth::plan
