#include "planner/memory_fit.h"

#include <gtest/gtest.h>

#include "engine/plan_builder.h"
#include "tiny_text_options.h"

namespace hearth::planner {
namespace {

TEST(MemoryFits, FindsTheLargestBatchThatFits) {
  const engine::EngineOptions options = engine::tiny_text_options();
  const int64_t memory = make_plan_report(options).peak_bytes * 3;
  MemoryFits fits(options, memory);
  const auto largest = fits.largest_unmodified();
  ASSERT_TRUE(largest);
  EXPECT_LE(largest->peak_bytes, memory);
  engine::EngineOptions more = options;
  more.batch = largest->batch + 1;
  EXPECT_GT(make_plan_report(engine::measure_plan(more, std::span(&more.batch, 1), {})).peak_bytes, memory);
  EXPECT_EQ(describe(*fits.cheapest()), "unchanged");
}

TEST(MemoryFits, AnotherBudgetPlansAsIfItWereTheFirst) {
  engine::EngineOptions options = engine::tiny_text_options();
  options.batch = 8;
  const std::span<const int64_t> sizes(&options.batch, 1);
  engine::Plan measured = engine::measure_plan(options, sizes, {});
  const int64_t free_bytes = measured.arena_bytes;
  for (const int64_t budget : {int64_t{1}, free_bytes / 2, free_bytes}) {
    options.budget_bytes = budget;
    engine::replan(measured, options.offload, budget);
    const engine::Plan fresh = engine::measure_plan(options, sizes, {});
    EXPECT_EQ(measured.arena_bytes, fresh.arena_bytes);
    EXPECT_EQ(measured.recompute.num_smaller, fresh.recompute.num_smaller);
    EXPECT_EQ(fresh.recompute.num_smaller > 0, budget < free_bytes);
  }
}

TEST(MemoryFits, UsesFp8OnlyIfAllowed) {
  engine::EngineOptions options = engine::tiny_text_options();
  options.batch = 8;
  options.device.link_bytes_per_second = 1e6;
  const PlanReport exact = make_plan_report(options);
  const auto cheapest_with = [&](SavedActivations saved, int64_t memory) {
    options.offload.saved = saved;
    return MemoryFits(options, memory).cheapest()->offload.saved;
  };
  using enum SavedActivations;
  EXPECT_EQ(cheapest_with(full, exact.peak_bytes), full);
  EXPECT_EQ(cheapest_with(fp8, exact.peak_bytes), fp8);
  EXPECT_EQ(cheapest_with(automatic, exact.peak_bytes), full);
  options.parallel = Parallel::pipeline;
  EXPECT_EQ(cheapest_with(automatic, exact.peak_bytes), full);
}

TEST(MemoryFits, GivesUpNoMoreThanItMust) {
  engine::EngineOptions options = engine::tiny_text_options();
  options.batch = 8;
  options.device.link_bytes_per_second = 1e8;
  const PlanReport free = make_plan_report(options);
  MemoryFits a_little(options, free.peak_bytes - free.arena_bytes / 4);
  const auto recomputed = a_little.cheapest();
  ASSERT_TRUE(recomputed);
  EXPECT_LE(recomputed->report.peak_bytes, free.peak_bytes - free.arena_bytes / 4);
  EXPECT_GT(recomputed->report.recompute.num_recomputed, 0);
  EXPECT_EQ(recomputed->report.host_bytes, 0);
  const auto largest = a_little.largest_with_offload();
  ASSERT_TRUE(largest);
  EXPECT_GT(largest->batch, 8);
  EXPECT_LE(largest->peak_bytes, free.peak_bytes - free.arena_bytes / 4);
  options.budget_bytes = 1;
  const PlanReport lowest = make_plan_report(options);
  MemoryFits a_lot(options, lowest.peak_bytes - lowest.optimizer_bytes / 2);
  const auto away = a_lot.cheapest();
  ASSERT_TRUE(away);
  EXPECT_GT(away->report.host_bytes, 0);
  EXPECT_GT(away->report.time.seconds, recomputed->report.time.seconds);
  EXPECT_FALSE(MemoryFits(options, 4096).cheapest());
}

}  // namespace
}  // namespace hearth::planner
