#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/memory_fit.h"
#include "models/decoder/config.h"
#include "tasks/language/language_model.h"
#include "temporary_folder.h"
#include "tiny_language_model.h"

namespace hearth::engine {
namespace {

constexpr int64_t kOffloadContext = 32;
constexpr int64_t kRows = 2;

EngineOptions tiny_options() {
  const TemporaryFolder folder;
  write_tiny_model(folder.path());
  EngineOptions options{
      .objective = tasks::language_model(
          {.config = models::read_decoder_config(folder.path() / "config.json"), .context = kOffloadContext}),
      .batch = kRows};
  options.optimizer.name = "adamw";
  options.num_threads = 2;
  options.offload.least_bytes = 64;
  return options;
}

/// Every byte that training changes, after some steps of `num_micro` micro-batches.
std::vector<std::byte> state_after(const EngineOptions& options) {
  Engine engine(options, std::span(&options.batch, 1), {});
  engine.initialize();
  constexpr size_t kSlack = 16;
  std::vector<int32_t> tokens(kRows * kOffloadContext + kSlack), labels(tokens.size()),
      positions(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(i * 37 % 96);
    labels[i] = static_cast<int32_t>(i * 53 % 96);
    positions[i] = static_cast<int32_t>(i % kOffloadContext);
  }
  const MicroBatch batch{{tokens.data(), labels.data(), positions.data()}, kRows};
  for (int64_t step = 0; step < 3; ++step) {
    const StepResult result = engine.train_step(
        options.accumulate, options.accumulate * kRows * kOffloadContext, [&] { return batch; }, step, 0.01);
    EXPECT_TRUE(std::isfinite(result.loss) && result.grad_norm > 0);
  }
  return {engine.state().begin(), engine.state().end()};
}

TEST(Offload, ChangesNoBit) {
  for (const int64_t accumulate : {1, 2}) {
    EngineOptions options = tiny_options();
    options.accumulate = accumulate;
    const auto want = state_after(options);
    options.offload.states = options.offload.weights = true;
    EXPECT_EQ(state_after(options), want) << accumulate;
    options.offload.activations = true;
    options.machine.link_bytes_per_second = 1e15;
    options.budget_bytes = make_plan_report(options).arena_bytes * 7 / 10;
    const PlanReport held = make_plan_report(options);
    EXPECT_GT(held.recompute.num_stashed, 0);
    EXPECT_EQ(state_after(options), want) << accumulate;
  }
}

TEST(Offload, TakesWhatIsAwayFromThePeak) {
  EngineOptions options = tiny_options();
  const PlanReport all = make_plan_report(options);
  options.offload.states = true;
  const PlanReport without_states = make_plan_report(options);
  EXPECT_EQ(all.host_bytes, 0);
  EXPECT_GT(without_states.host_bytes, all.optimizer_bytes * 9 / 10);
  EXPECT_LT(without_states.optimizer_bytes, all.optimizer_bytes / 10);
  EXPECT_LT(without_states.peak_bytes, all.peak_bytes);
}

TEST(InBackward, MovesWeightsAsTheWholeUpdateDoesAndFreesGradients) {
  EngineOptions options = tiny_options();
  const auto want = state_after(options);
  const PlanReport whole = make_plan_report(options);
  options.optimizer.in_backward = true;
  EXPECT_EQ(state_after(options), want);
  const PlanReport early = make_plan_report(options);
  EXPECT_LT(early.gradient_bytes, whole.gradient_bytes / 2);
  EXPECT_LT(early.arena_bytes, whole.arena_bytes);
}

TEST(MemoryFits, FindsTheLargestBatchThatFits) {
  const EngineOptions options = tiny_options();
  const int64_t memory = make_plan_report(options).peak_bytes * 3;
  MemoryFits fits(options, memory);
  const auto largest = fits.largest_as_it_is();
  ASSERT_TRUE(largest);
  EXPECT_LE(largest->peak_bytes, memory);
  EngineOptions more = options;
  more.batch = largest->batch + 1;
  more.measure_only = true;
  EXPECT_GT(make_plan_report(more).peak_bytes, memory);
  EXPECT_EQ(describe(*fits.cheapest()), "as it is");
}

TEST(MemoryFits, AnotherBudgetPlansAsAnEngineMadeForIt) {
  EngineOptions options = tiny_options();
  options.batch = 8;
  options.measure_only = true;
  Engine engine(options, std::span(&options.batch, 1), {});
  const int64_t free_bytes = engine.arena_bytes();
  for (const int64_t budget : {int64_t{1}, free_bytes / 2, free_bytes}) {
    options.budget_bytes = budget;
    engine.place(options.offload, budget);
    const PlanReport fresh = make_plan_report(options);
    EXPECT_EQ(engine.arena_bytes(), fresh.arena_bytes);
    EXPECT_EQ(engine.recompute().num_smaller, fresh.recompute.num_smaller);
    EXPECT_EQ(fresh.recompute.num_smaller > 0, budget < free_bytes);
  }
}

TEST(MemoryFits, GivesUpNoMoreThanItMust) {
  EngineOptions options = tiny_options();
  options.batch = 8;
  options.machine.link_bytes_per_second = 1e8;
  const PlanReport free = make_plan_report(options);
  MemoryFits a_little(options, free.peak_bytes - free.arena_bytes / 4);
  const auto recomputed = a_little.cheapest();
  ASSERT_TRUE(recomputed);
  EXPECT_LE(recomputed->report.peak_bytes, free.peak_bytes - free.arena_bytes / 4);
  EXPECT_GT(recomputed->report.recompute.num_recomputed, 0);
  EXPECT_EQ(recomputed->report.host_bytes, 0);
  const auto largest = a_little.largest_by_every_means();
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
}  // namespace hearth::engine
