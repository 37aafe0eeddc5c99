// Copies beside computing on an emulated card: whatever stream gets ahead, the bits are those of plain runs.
#include <gmock/gmock.h>

#include <cmath>

#include "base/error.h"
#include "train/card_course.h"
#include "train/plan_report.h"

namespace hearth::train {
namespace {

constexpr int64_t kFewSteps = 3;

class CardOverlap : public CardTraining {
 protected:
  static emu::CardSettings ahead(uint64_t seed) { return {.order_seed = seed}; }

  static EngineOptions offloading(EngineOptions options) {
    options.offload = {.states = true, .weights = true, .activations = true, .least_bytes = 64};
    options.machine.link_bytes_per_second = 1e15;
    options.budget_bytes = make_plan_report(on_card(options)).arena_bytes * 7 / 10;
    return options;
  }
  /// Every node has a kernel for cards.
  static EngineOptions whole() {
    EngineOptions options = on_card(pictures());
    options.optimizer.momentum = 0;
    return options;
  }
};

TEST_F(CardOverlap, OffloadChangesNoBit) {
  for (const int64_t accumulate : {1, 2}) {
    EngineOptions options = text();
    options.accumulate = accumulate;
    const auto want = Course(on_card(options)).state_after(kFewSteps);
    options = offloading(options);
    EXPECT_GT(make_plan_report(on_card(options)).recompute.num_stashed, 0);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      emu::cards() = {ahead(seed)};
      EXPECT_EQ(Course(on_card(options)).state_after(kFewSteps), want) << "order " << seed;
    }
    emu::cards() = {{}};
  }
}

TEST_F(CardOverlap, WhatIsOffloadedTakesNoMemoryOfTheCard) {
  EngineOptions options = on_card(text());
  const int64_t all = Course(options).engine().card_bytes();
  options.offload = {.states = true, .least_bytes = 64};
  emu::cards() = {{.memory_bytes = Course(options).engine().card_bytes()}};
  EXPECT_LT(emu::cards()[0].memory_bytes, all);
  EXPECT_NO_THROW(Course(options).step());
  options.offload = {};
  EXPECT_THROW(Course(options).step(), UserError);
}

TEST_F(CardOverlap, WhatTheHostWritesReachesWhatIsOffloaded) {
  const EngineOptions options = on_card(offloading(text()));
  Course course(options), other(options);
  const auto kept = course.state_after(2);
  other.step();
  other.step();
  std::ranges::fill(other.engine().state(), std::byte{0});
  std::ranges::copy(kept, other.engine().state().begin());
  EXPECT_EQ(other.step().loss, course.step().loss);
  EXPECT_TRUE(std::ranges::equal(other.engine().state(), course.engine().state()));
}

TEST_F(CardOverlap, InputsOfTheNextMicroBatchDisturbNothing) {
  EngineOptions options = whole();
  options.accumulate = 5;
  const auto want = Course(options).state_after(kFewSteps);
  for (uint64_t seed = 1; seed < 8; ++seed) {
    emu::cards() = {ahead(seed)};
    EXPECT_EQ(Course(options).state_after(kFewSteps), want) << "order " << seed;
  }
}

}  // namespace
}  // namespace hearth::train
