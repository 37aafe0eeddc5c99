#include <gtest/gtest.h>

#include "base/error.h"
#include "tiny_language_model.h"
#include "train/plan_report.h"
#include "train/team_run.h"

namespace hearth::train {
namespace {

/// Two epochs of 65 rows: the last of three updates has six of eight micro-batches, one of them short.
constexpr const char* kPictures = R"(
model: {name: mlp, num_classes: 10, hidden: [24, 16], dropout: 0.1}
data: {kind: shapes, image_size: 8, count: 65, val_count: 20, flip: true, crop_padding: 1, threads: 1}
train: {epochs: 2, batch: 3, accumulate: 8, shards: 4, checkpoint_every: 2, ema: 0.9, clip_norm: 1, log_every: 1}
optimizer: {name: adamw, lr: 0.01}
threads: 1
)";

class Team : public testing::Test {
 protected:
  Team() {
    write_tiny_model(folder_.path() / "model");
    std::string text;
    for (int i = 0; i < 400; ++i) text += fmt::format("line {} of {}\n", i * 7 % 23, i);
    write_file_atomically(folder_.path() / "lines.txt", text);
    words_ = fmt::format(
        "model: {{config: {0}/model/config.json}}\n"
        "data: {{path: {0}/lines.txt, cache: {0}/cache, context: 64, val_share: 0.2}}\n"
        "train: {{steps: 6, batch: 2, accumulate: 8, shards: 4, log_every: 1}}\n"
        "optimizer: {{name: adamw, lr: 0.01}}\nthreads: 1\nseed: 3\n",
        folder_.path().string());
  }

  TemporaryFolder folder_{quick_folder()};
  std::string words_;
};

TEST_F(Team, OneTwoAndFourWorkersMakeTheSameBits) {
  for (const std::string& yaml : {std::string(kPictures), words_}) {
    const Outcome want = train_with(yaml, 1);
    ASSERT_EQ(want.losses.size(), 6U);
    expect_same(train_with(yaml, 2), want, "two workers");
    expect_same(train_with(yaml, 4), want, "four workers");
  }
}

TEST_F(Team, ARunGoesOnWithAnotherNumberOfWorkers) {
  for (const std::string& yaml : {std::string(kPictures), words_}) {
    const Outcome want = train_with(yaml, 1);
    const TemporaryFolder folder(quick_folder());
    train_with(yaml, 4, folder.path(), 1, false);
    train_with(yaml, 1, folder.path(), 2, true);
    expect_same(train_with(yaml, 2, folder.path(), 0, true), want, "in turns");
  }
}

std::string without(std::string yaml, const std::string& setting) {
  return yaml.replace(yaml.find(setting), setting.size(), "");
}

TEST_F(Team, ShardedStatesMakeTheBitsOfWholeOnes) {
  const std::string pictures = without(without(kPictures, ", ema: 0.9"), ", clip_norm: 1");
  for (const std::string& yaml : {pictures, words_}) {
    const Outcome want = train_with(yaml, 1);
    const std::string sharded = yaml + "parallel: zero1\n";
    expect_same(train_with(sharded, 2), want, "two workers");
    expect_same(train_with(sharded, 4), want, "four workers");
    const TemporaryFolder folder(quick_folder());
    train_with(sharded, 4, folder.path(), 1, false);
    train_with(yaml, 1, folder.path(), 2, true);
    expect_same(train_with(sharded, 2, folder.path(), 0, true), want, "in turns");
  }
}

TEST(TeamPlan, ShardsOfTheStatesAreTheWholeOnes) {
  const auto optimiser_bytes = [](const std::string& parallel, int rank) {
    const std::vector<std::string> overrides = {"devices=2", "train.ema=0", "train.shards=8", parallel};
    EngineOptions options = engine_options(parse_recipe(kPictures, "test", overrides));
    options.rank = rank;
    options.backend = exec::Backend::null;
    return make_plan_report(options).optimiser_bytes;
  };
  const int64_t whole = optimiser_bytes("parallel=data", 0);
  const int64_t first = optimiser_bytes("parallel=zero1", 0), second = optimiser_bytes("parallel=zero1", 1);
  EXPECT_GT(first, 0);
  EXPECT_GT(second, 0);
  // Running statistics and the count of steps are everybody's.
  EXPECT_GE(first + second, whole);
  EXPECT_LE(first + second, whole + whole / 20);
}

/// Gradients of the same micro-batches in another order of sums, and statistics that move once per update.
TEST_F(Team, ShardsMoveResultsNoFurtherThanRoundingDoes) {
  std::string apart = words_;
  apart.replace(apart.find("shards: 4"), 9, "shards: 1");
  const Outcome one = train_with(apart, 1), four = train_with(words_, 1);
  EXPECT_FALSE(one.memory == four.memory);
  ASSERT_EQ(one.losses.size(), four.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(one.losses[i], four.losses[i], 1e-4);
}

TEST(TeamRecipe, DividesAnUpdateAmongItsDevices) {
  const auto parsed = [](std::vector<std::string> overrides) {
    return parse_recipe(kPictures, "test", overrides);
  };
  const Recipe halves = parsed({"train.batch=12", "train.accumulate=1", "train.shards=0", "devices=2"});
  EXPECT_EQ(halves.batch, 6);
  EXPECT_EQ(halves.accumulate, 2);
  EXPECT_EQ(halves.shards, 2);
  EXPECT_EQ(parse_recipe(write_recipe(halves), "again", std::vector<std::string>{"devices=1"}).shards, 2);
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

TEST(TeamRecipe, RefusesDataThatLeavesAWorkerWithNothing) {
  std::string yaml = kPictures;
  yaml.replace(yaml.find("count: 65"), 9, "count: 17");
  try {
    train_with(yaml, 4);
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("17 rows"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hearth::train
