#include "exec/waits.h"

#include <algorithm>
#include <array>
#include <functional>

/// Steps are visited in program order. A step conflicts with an earlier step of another queue if both access
/// the same bytes and at least one of them writes. Because queues run in order, it is enough to wait for the
/// latest conflicting step of each queue, unless an earlier wait implies that this step is done. To detect
/// this, each step has a vector clock: for every queue, the last step known to be done when this step ends.
/// The worst case is quadratic in the number of steps; the clocks end most searches early.
namespace hearth::exec {
namespace {

/// Vector clock. Entry q is an index in program order: all steps of queue q with a lower index are known to
/// be done.
using Clock = std::array<size_t, kNumQueues>;

void merge(Clock& clock, const Clock& other) {
  std::ranges::transform(clock, other, clock.begin(), [](size_t a, size_t b) { return std::max(a, b); });
}

bool conflict(const Access& a, const Access& b) {
  if (!a.writes && !b.writes) return false;
  return a.begin < b.begin + b.num_bytes && b.begin < a.begin + a.num_bytes;
}

bool conflict(const QueuedStep& a, const QueuedStep& b) {
  return std::ranges::any_of(a.accesses, [&](const Access& one) {
    return std::ranges::any_of(b.accesses, [&](const Access& other) { return conflict(one, other); });
  });
}

class Finder {
 public:
  explicit Finder(std::span<const QueuedStep> steps) : steps_(steps), clocks_(steps.size()) {}

  Waits run() {
    Waits waits;
    for (size_t i = 0; i < steps_.size(); ++i) {
      const size_t own = static_cast<size_t>(steps_[i].queue);
      clocks_[i] = now_[own];
      waits.before.push_back(
          take(clocks_[i], own, [&](size_t other) { return conflict(steps_[i], steps_[other]); }));
      clocks_[i][own] = i + 1;
      now_[own] = clocks_[i];
      of_queue_[own].push_back(i);
    }
    const size_t compute = static_cast<size_t>(Queue::compute);
    waits.at_end = take(now_[compute], compute, [](size_t) { return true; });
    return waits;
  }

 private:
  /// Returns the latest step of each other queue that is `wanted` and not known to be done, without steps
  /// that another returned step implies. Merges their clocks into `clock`.
  template <typename Wanted>
  std::vector<size_t> take(Clock& clock, size_t own, Wanted wanted) const {
    std::vector<size_t> found;
    for (size_t queue = 0; queue < kNumQueues; ++queue) {
      if (queue == own) continue;
      for (auto step = of_queue_[queue].rbegin(); step != of_queue_[queue].rend(); ++step) {
        if (*step < clock[queue]) break;
        if (!wanted(*step)) continue;
        found.push_back(*step);
        break;
      }
    }
    // Sorted by index in descending order: waiting for a later step can make the wait for an earlier one
    // redundant, but not vice versa.
    std::ranges::sort(found, std::greater<>());
    std::vector<size_t> needed;
    for (const size_t step : found) {
      if (step < clock[static_cast<size_t>(steps_[step].queue)]) continue;
      merge(clock, clocks_[step]);
      needed.push_back(step);
    }
    return needed;
  }

  std::span<const QueuedStep> steps_;
  std::vector<Clock> clocks_;  ///< for each step, the clock at its end
  std::array<Clock, kNumQueues> now_ = {};
  std::array<std::vector<size_t>, kNumQueues> of_queue_;
};

}  // namespace

Waits find_waits(std::span<const QueuedStep> steps) { return Finder(steps).run(); }

}  // namespace hearth::exec
