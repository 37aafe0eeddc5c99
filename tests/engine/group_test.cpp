#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/group_run.h"
#include "planner/plan_report.h"
#include "run/from_recipe.h"

namespace hearth::engine {
namespace {

/// Two epochs of 65 rows: the last of three updates has six of eight micro-batches, one of them short.
constexpr const char* kImages = R"(
model: {name: mlp, num_classes: 10, hidden: [24, 16], dropout: 0.1}
data: {kind: shapes, image_size: 8, count: 65, val_count: 20, flip: true, crop_padding: 1, threads: 1}
train: {epochs: 2, batch: 3, accumulate: 8, shards: 4, checkpoint_every: 2, ema: 0.9, clip_norm: 1, log_every: 1}
optimizer: {name: adamw, lr: 0.01}
threads: 1
)";

class Group : public testing::Test {
 protected:
  TemporaryFolder folder_{run::quick_folder()};
  std::string words_ =
      words_recipe(folder_.path(), "steps: 6, batch: 2, accumulate: 8, shards: 4, log_every: 1");
};

TEST_F(Group, OneTwoAndFourWorkersMakeTheSameBits) {
  for (const std::string& yaml : {std::string(kImages), words_}) expect_bits_of_one(yaml, yaml);
}

TEST_F(Group, ARunGoesOnWithAnotherNumberOfWorkers) {
  for (const std::string& yaml : {std::string(kImages), words_}) expect_bits_in_turns(yaml, yaml, 1);
}

std::string without(const std::string& yaml, const std::string& setting) {
  return replaced(yaml, setting, "");
}

TEST_F(Group, ShardedStatesMakeTheBitsOfWholeOnes) {
  const std::string images = without(kImages, ", ema: 0.9");
  for (const std::string& yaml : {images, words_}) {
    const std::string sharded = yaml + "parallel: zero1\n";
    expect_bits_of_one(sharded, yaml);
    expect_bits_in_turns(sharded, yaml, 1);
  }
}

TEST(GroupPlan, ShardsOfTheStatesAreTheWholeOnes) {
  const auto optimizer_bytes = [](const std::string& parallel, int rank) {
    const std::vector<std::string> overrides = {"devices=2", "train.ema=0", "train.shards=8", parallel};
    EngineOptions options = run::engine_options(tasks::Job(run::parse_recipe(kImages, "test", overrides)));
    options.rank = rank;
    options.backend = exec::Backend::null;
    return planner::make_plan_report(options).optimizer_bytes;
  };
  const int64_t whole = optimizer_bytes("parallel=data", 0);
  const int64_t first = optimizer_bytes("parallel=zero1", 0), second = optimizer_bytes("parallel=zero1", 1);
  EXPECT_GT(first, 0);
  EXPECT_GT(second, 0);
  // Running statistics and the count of steps are everybody's.
  EXPECT_GE(first + second, whole);
  EXPECT_LE(first + second, whole + whole / 20);
}

/// Gradients of the same micro-batches in another order of sums, and statistics that move once per update.
TEST_F(Group, ShardsMoveResultsNoFurtherThanRoundingDoes) {
  std::string apart = words_;
  apart.replace(apart.find("shards: 4"), 9, "shards: 1");
  const run::Outcome one = train_with(apart, 1), four = train_with(words_, 1);
  EXPECT_FALSE(one.memory == four.memory);
  ASSERT_EQ(one.losses.size(), four.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(one.losses[i], four.losses[i], 1e-4);
}

TEST(GroupRecipe, DividesAnUpdateAmongItsDevices) {
  const auto parsed = [](std::vector<std::string> overrides) {
    return run::parse_recipe(kImages, "test", overrides);
  };
  const recipe::Recipe halves =
      parsed({"train.batch=12", "train.accumulate=1", "train.shards=0", "devices=2"});
  EXPECT_EQ(halves.train.batch, 6);
  EXPECT_EQ(halves.train.accumulate, 2);
  EXPECT_EQ(halves.train.shards, 2);
  EXPECT_EQ(
      run::parse_recipe(write_recipe(halves), "again", std::vector<std::string>{"devices=1"}).train.shards,
      2);
  for (const auto& [override, advice] :
       {std::pair{"devices=3", "train.shards=3"}, std::pair{"train.accumulate=6", "train.accumulate=8"}}) {
    try {
      parsed({override});
      ADD_FAILURE() << override;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(advice), std::string::npos) << error.what();
    }
  }
}

TEST(GroupRecipe, RefusesDataThatLeavesAWorkerWithNothing) {
  try {
    train_with(replaced(kImages, "count: 65", "count: 17"), 4);
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("17 rows"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hearth::engine
