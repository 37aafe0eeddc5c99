#include "arena/greedy.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "arena/sweep.h"

namespace hearth::arena {
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

/// Places buffers one by one into the lowest (first fit) or smallest (best fit) gap between the buffers
/// whose lifetimes overlap.
class Placer {
 public:
  explicit Placer(const Problem& problem) : problem_(problem) {
    for (const Buffer& buffer : problem.buffers) span_ = std::max(span_, buffer.upper / kSlots + 1);
    placed_.reserve(problem.buffers.size());
  }

  enum class End : uint8_t { placed, too_high, too_late };

  /// Places the buffers in the given order. Returns early if the height reaches `limit` or the deadline
  /// passes.
  End run(const std::vector<int>& order, Fit fit, int64_t limit, TimePoint deadline, Solution& solution) {
    placed_.clear();
    for (std::vector<Placed>& slot : slots_) slot.clear();
    solution.height = 0;
    solution.offsets.resize(problem_.buffers.size());
    for (const int index : order) {
      const Buffer& buffer = problem_.buffers[static_cast<size_t>(index)];
      const int64_t begin = find_offset(buffer, fit);
      const Placed placed{
          .begin = begin, .end = begin + buffer.size, .lower = buffer.lower, .upper = buffer.upper};
      insert(placed_, placed);
      for (size_t slot = slot_of(buffer.lower); slot <= slot_of(buffer.upper - 1); ++slot)
        insert(slots_[slot], placed);
      solution.offsets[static_cast<size_t>(index)] = begin;
      solution.height = std::max(solution.height, placed.end);
      if (solution.height >= limit) return End::too_high;
      if (placed_.size() % 256 == 0 && std::chrono::steady_clock::now() >= deadline) return End::too_late;
    }
    return End::placed;
  }

 private:
  struct Placed {
    int64_t begin = 0;
    int64_t end = 0;
    int64_t lower = 0;
    int64_t upper = 0;
    bool operator<(const Placed& other) const { return begin < other.begin; }
  };

  static constexpr int64_t kSlots = 64;

  static void insert(std::vector<Placed>& sorted, const Placed& placed) {
    sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), placed), placed);
  }

  size_t slot_of(int64_t time) const { return static_cast<size_t>(std::max<int64_t>(0, time) / span_); }

  /// Returns the placed buffers whose lifetime may overlap the lifetime of `buffer`.
  const std::vector<Placed>& overlapping(const Buffer& buffer) const {
    const size_t slot = slot_of(buffer.lower);
    return slot == slot_of(buffer.upper - 1) ? slots_[slot] : placed_;
  }

  int64_t find_offset(const Buffer& buffer, Fit fit) const {
    int64_t top = 0;
    int64_t best = -1;
    int64_t best_gap = INT64_MAX;
    for (const Placed& other : overlapping(buffer)) {
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
  int64_t span_ = 1;            ///< length of a time slot
  std::vector<Placed> placed_;  ///< all placed buffers, sorted by begin
  /// The placed buffers whose lifetime meets each of kSlots equal time intervals. Most lifetimes are within
  /// one slot, so overlapping() searches few buffers.
  std::array<std::vector<Placed>, kSlots> slots_;
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

Solution solve_greedy(const Problem& problem, std::optional<int64_t> capacity, TimePoint deadline) {
  const int64_t bound = lower_bound(problem);
  const int64_t target = std::max(bound, capacity.value_or(bound));
  Solution best = sweep(problem);
  best.lower_bound = bound;
  if (best.height <= target) return best;
  Placer placer(problem);
  Solution solution;
  for (const Key key : kKeys) {
    const std::vector<int> order = order_by(problem, key);
    for (const Fit fit : {Fit::first, Fit::best}) {
      const auto end = placer.run(order, fit, best.height, deadline, solution);
      if (end == Placer::End::too_late) return best;
      if (end == Placer::End::too_high) continue;
      best.height = solution.height;
      best.offsets = solution.offsets;
      if (best.height <= target) return best;
    }
  }
  return best;
}

}  // namespace hearth::arena
