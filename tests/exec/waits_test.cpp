#include "exec/waits.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/philox.h"

namespace hearth::exec {
namespace {

/// Pairs of steps, the first of which is certainly done when the second starts.
class HappensBefore {
 public:
  HappensBefore(std::span<const QueuedStep> steps, const Waits& waits) : size_(steps.size()), known_(size_) {
    for (size_t i = 0; i < size_; ++i) {
      known_[i].assign(size_, 0);
      for (size_t j = 0; j < i; ++j) {
        if (steps[j].queue == steps[i].queue) learn(i, j);
      }
      for (const size_t j : waits.before[i]) learn(i, j);
    }
    end_.assign(size_, 0);
    for (size_t j = 0; j < size_; ++j) {
      if (steps[j].queue == Queue::compute) learn(end_, j);
    }
    for (const size_t j : waits.at_end) learn(end_, j);
  }
  bool knows(size_t step, size_t earlier) const { return known_[step][earlier] != 0; }
  bool all_done_at_end() const {
    return std::ranges::all_of(end_, [](char done) { return done != 0; });
  }

 private:
  void learn(size_t step, size_t earlier) { learn(known_[step], earlier); }
  void learn(std::vector<char>& done, size_t earlier) const {
    done[earlier] = 1;
    for (size_t i = 0; i < size_; ++i) done[i] = static_cast<char>(done[i] | known_[earlier][i]);
  }

  size_t size_;
  std::vector<std::vector<char>> known_;
  std::vector<char> end_;
};

/// Touches bytes of a small memory, so that ranges meet often and in part.
std::vector<QueuedStep> random_steps(uint64_t seed) {
  PhiloxSequence random(seed, 0);
  std::vector<QueuedStep> steps(30);
  for (QueuedStep& step : steps) {
    step.queue = static_cast<Queue>(random.below(kNumQueues));
    for (int i = 0; i < 3; ++i)
      step.accesses.push_back({random.below(20), 1 + random.below(4), random.below(3) == 0});
  }
  return steps;
}

bool conflict(const QueuedStep& a, const QueuedStep& b) {
  for (const Access& x : a.accesses) {
    for (const Access& y : b.accesses) {
      if ((x.writes || y.writes) && x.begin < y.begin + y.num_bytes && y.begin < x.begin + x.num_bytes)
        return true;
    }
  }
  return false;
}

/// Whether every conflict has an order and nothing is left behind.
bool enough(std::span<const QueuedStep> steps, const Waits& waits) {
  const HappensBefore before(steps, waits);
  for (size_t i = 0; i < steps.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (conflict(steps[i], steps[j]) && !before.knows(i, j)) return false;
    }
  }
  return before.all_done_at_end();
}

TEST(Waits, AreEnoughAndNoneIsTooMany) {
  size_t num_waits = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<QueuedStep> steps = random_steps(seed);
    const Waits waits = find_waits(steps);
    ASSERT_TRUE(enough(steps, waits)) << "seed " << seed;
    for (size_t i = 0; i < steps.size(); ++i) {
      for (size_t k = 0; k < waits.before[i].size(); ++k) {
        Waits fewer = waits;
        fewer.before[i].erase(fewer.before[i].begin() + static_cast<int64_t>(k));
        ASSERT_FALSE(enough(steps, fewer))
            << "seed " << seed << ": step " << i << " need not wait for " << waits.before[i][k];
        ++num_waits;
      }
    }
    for (size_t k = 0; k < waits.at_end.size(); ++k) {
      Waits fewer = waits;
      fewer.at_end.erase(fewer.at_end.begin() + static_cast<int64_t>(k));
      ASSERT_FALSE(enough(steps, fewer))
          << "seed " << seed << ": the end need not wait for " << waits.at_end[k];
    }
  }
  EXPECT_GT(num_waits, 500U);
}

TEST(Waits, AreNoneWhereCopiesAndComputingTouchOtherBytes) {
  const std::vector<QueuedStep> steps = {
      {.queue = Queue::in, .accesses = {{0, 1, true}}},
      {.queue = Queue::compute, .accesses = {{1, 1, true}}},
      {.queue = Queue::compute, .accesses = {{0, 1, false}, {2, 1, true}}},
  };
  const Waits waits = find_waits(steps);
  EXPECT_TRUE(waits.before[1].empty());
  EXPECT_EQ(waits.before[2], std::vector<size_t>{0});
  EXPECT_TRUE(waits.at_end.empty()) << "the copy is known to be done";
}

}  // namespace
}  // namespace hearth::exec
