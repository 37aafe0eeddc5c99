#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "run/stopped_run.h"

namespace hearth::run {
namespace {

/// A checkpoint on the disk only where the run ends; in memory after the first step at the latest.
constexpr const char* kStoppedRecipe = R"(
model: {name: mlp, num_classes: 10, hidden: [24, 16], dropout: 0.1}
data: {kind: shapes, image_size: 8, count: 70, val_count: 20, flip: true, crop_padding: 1}
train: {steps: 40, batch: 8, accumulate: 2, checkpoint_every: 1000, ema: 0.9, log_every: 1}
optimizer: {name: adamw, lr: 0.01}
threads: 2
)";

struct Death : std::runtime_error {
  Death() : std::runtime_error("death") {}
};

class MemoryCheckpoint : public testing::Test {
 protected:
  /// Trains from where the folder and the memory are, and dies where `dies` says so of a step.
  void train(const RunStart& start, const std::function<bool(int64_t)>& dies = {},
             const std::string& more = "seed=0") {
    const recipe::Recipe recipe = run::parse_recipe(
        kStoppedRecipe, "test", std::vector<std::string>{"train.memory_checkpoint_every=1e-9", more});
    messages_.clear();
    Trainer trainer(tasks::Job(recipe), folder_.path(),
                    {.progress =
                         [&](const Progress& progress) {
                           if (dies && dies(progress.step)) throw Death();
                         },
                     .message = [&](const std::string& text) { messages_.push_back(text); },
                     .memory = &*memory_});
    trainer.run(start);
    state_.assign(trainer.engine().state().begin(), trainer.engine().state().end());
  }
  void die_at(int64_t step, const RunStart& start) {
    EXPECT_THROW(train(start, [=](int64_t at) { return at == step; }), Death);
  }

  const TemporaryFolder folder_{quick_folder()};
  std::optional<io::CheckpointMemory> memory_{std::in_place};
  std::vector<std::byte> state_;
  std::vector<std::string> messages_;
};

TEST_F(MemoryCheckpoint, IsGoneOnFromToTheSameBits) {
  const Outcome want = run_with_stop(run::parse_recipe(kStoppedRecipe, "test"), 0);
  die_at(2, {});
  die_at(20, {.resume = true});
  EXPECT_EQ(messages_.at(0), "resumed step 1 from memory");
  train({.resume = true});
  EXPECT_THAT(messages_.at(0), testing::MatchesRegex("resumed step [0-9]+ from memory"));
  EXPECT_TRUE(state_ == want.memory);
  const auto losses = io::read_curve(folder_.path() / "trainer_log.jsonl", "loss");
  ASSERT_EQ(losses.size(), want.losses.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_EQ(losses[i].value, want.losses[i]) << i;
}

TEST_F(MemoryCheckpoint, OfAnotherRecipeIsNotTaken) {
  die_at(2, {});
  train({.resume = true}, {}, "seed=1");
  EXPECT_THAT(messages_.at(0), testing::HasSubstr("no complete checkpoint in "));
}

TEST_F(MemoryCheckpoint, GivesWayToAnotherOrderOnTheDisk) {
  die_at(2, {});
  train({.resume = true, .new_order = true});
  const std::vector<std::byte> want = state_;
  fs::remove_all(folder_.path() / "checkpoints");
  memory_.emplace();
  die_at(2, {});
  // It dies before memory has a step of the other order.
  die_at(2, {.resume = true, .new_order = true});
  train({.resume = true});
  EXPECT_THAT(messages_.at(0), testing::HasSubstr("(step 1)"));
  EXPECT_TRUE(state_ == want);
}

}  // namespace
}  // namespace hearth::run
