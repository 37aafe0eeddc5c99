#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/engine.h"
#include "planner/plan_report.h"
#include "tiny_text_options.h"

namespace hearth::engine {
namespace {

/// Every byte that training changes, after some steps of `num_micro` micro-batches.
std::vector<std::byte> state_after(const EngineOptions& options) {
  Engine engine(options, std::span(&options.batch, 1), {});
  engine.initialize();
  constexpr size_t kSlack = 16;
  std::vector<int32_t> tokens(kTinyRows * kTinyContext + kSlack), labels(tokens.size()),
      positions(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(i * 37 % 96);
    labels[i] = static_cast<int32_t>(i * 53 % 96);
    positions[i] = static_cast<int32_t>(i % kTinyContext);
  }
  const MicroBatch batch{
      {{"tokens", tokens.data()}, {"labels", labels.data()}, {"positions", positions.data()}}, kTinyRows};
  for (int64_t step = 0; step < 3; ++step) {
    const StepResult result = engine.train_step(
        options.accumulate, options.accumulate * kTinyRows * kTinyContext, [&] { return batch; }, step, 0.01);
    EXPECT_TRUE(std::isfinite(result.loss) && result.grad_norm > 0);
  }
  return {engine.state().begin(), engine.state().end()};
}

TEST(Offload, ChangesNoBit) {
  for (const int64_t accumulate : {1, 2}) {
    EngineOptions options = tiny_text_options();
    options.accumulate = accumulate;
    const auto want = state_after(options);
    options.offload.states = options.offload.weights = true;
    EXPECT_EQ(state_after(options), want) << accumulate;
    options.offload.activations = true;
    options.device.link_bytes_per_second = 1e15;
    options.budget_bytes = planner::make_plan_report(options).arena_bytes * 7 / 10;
    const planner::PlanReport held = planner::make_plan_report(options);
    EXPECT_GT(held.recompute.num_stashed, 0);
    EXPECT_EQ(state_after(options), want) << accumulate;
  }
}

/// The tiny language model with rows that are long enough to be encoded in fp8.
EngineOptions encoded_options() {
  const TemporaryFolder folder;
  write_tiny_model(folder.path());
  models::DecoderConfig config = models::read_decoder_config(folder.path() / "config.json");
  config.hidden = 32;
  config.intermediate = 64;
  config.head_size = 16;
  EngineOptions options = tiny_text_options();
  options.objective = tasks::language_model({.config = config, .context = kTinyContext});
  options.offload.saved = SavedActivations::fp8;
  options.offload.min_encoded_bytes = 1024;
  return options;
}

TEST(SavedActivations, GiveTheSameBitsForAnyBudget) {
  EngineOptions options = encoded_options();
  const planner::PlanReport plan = planner::make_plan_report(options);
  ASSERT_GT(plan.encoded.num_encoded, 0);
  const auto want = state_after(options);
  options.budget_bytes = plan.arena_bytes * 8 / 10;
  EXPECT_GT(planner::make_plan_report(options).recompute.num_recomputed, 0);
  EXPECT_EQ(state_after(options), want);
  options.offload.states = options.offload.weights = options.offload.activations = true;
  options.device.link_bytes_per_second = 1e15;
  options.budget_bytes = planner::make_plan_report(options).arena_bytes * 8 / 10;
  EXPECT_GT(planner::make_plan_report(options).recompute.num_stashed, 0);
  EXPECT_EQ(state_after(options), want);
  options.offload.saved = SavedActivations::full;
  EXPECT_NE(state_after(options), want);
}

TEST(Offload, TakesWhatIsAwayFromThePeak) {
  EngineOptions options = tiny_text_options();
  const planner::PlanReport all = planner::make_plan_report(options);
  options.offload.states = true;
  const planner::PlanReport without_states = planner::make_plan_report(options);
  EXPECT_EQ(all.host_bytes, 0);
  EXPECT_GT(without_states.host_bytes, all.optimizer_bytes * 9 / 10);
  EXPECT_LT(without_states.optimizer_bytes, all.optimizer_bytes / 10);
  EXPECT_LT(without_states.peak_bytes, all.peak_bytes);
}

TEST(InBackward, MovesWeightsAsTheWholeUpdateDoesAndFreesGradients) {
  EngineOptions options = tiny_text_options();
  const auto want = state_after(options);
  const planner::PlanReport whole = planner::make_plan_report(options);
  options.optimizer.in_backward = true;
  EXPECT_EQ(state_after(options), want);
  const planner::PlanReport early = planner::make_plan_report(options);
  EXPECT_LT(early.gradient_bytes, whole.gradient_bytes / 2);
  EXPECT_LT(early.arena_bytes, whole.arena_bytes);
}

}  // namespace
}  // namespace hearth::engine
