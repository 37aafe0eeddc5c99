// Training in stages: the bits of one device, whatever falls to each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/group_run.h"
#include "planner/plan_report.h"
#include "run/from_recipe.h"
#include "tiny_language_model.h"

namespace hearth::engine {
namespace {

/// Two epochs of 65 rows: the last of three updates has six of eight micro-batches, one of them short.
constexpr const char* kStagedImages = R"(
model: {name: mlp, num_classes: 10, hidden: [24, 16, 16, 16], dropout: 0.1}
data: {kind: shapes, image_size: 8, count: 65, val_count: 20, flip: true, crop_padding: 1, threads: 1}
train: {epochs: 2, batch: 3, accumulate: 8, checkpoint_every: 2, ema: 0.9, clip_norm: 1, log_every: 1}
optimizer: {name: adamw, lr: 0.01}
threads: 1
)";
constexpr const char* kWords = "shards: 1, steps: 6, batch: 2, accumulate: 8, log_every: 1, clip_norm: 1";

class PipelineRun : public testing::Test {
 protected:
  static std::string piped(const std::string& yaml) { return yaml + "parallel: pipeline\n"; }
  TemporaryFolder folder_{run::quick_folder()};
  std::string words_ = words_recipe(folder_.path(), kWords);
};

TEST_F(PipelineRun, StagesMakeTheBitsOfOneDevice) {
  for (const std::string& yaml : {std::string(kStagedImages), words_}) expect_bits_of_one(piped(yaml), yaml);
}

TEST_F(PipelineRun, GoesOnWithAnotherNumberOfStages) {
  for (const std::string& yaml : {std::string(kStagedImages), words_})
    expect_bits_in_turns(piped(yaml), yaml, 1);
}

TEST_F(PipelineRun, FewerRowsThanAMicroBatchPassThroughStagesToo) {
  const std::string yaml = replaced(replaced(kStagedImages, "count: 65", "count: 5"), "batch: 3", "batch: 8");
  const run::Outcome want = train_with(yaml, 1);
  ASSERT_EQ(want.losses.size(), 2U);
  expect_same(train_with(piped(yaml), 2), want, "two stages");
}

TEST_F(PipelineRun, GoesOnWithAnotherNumberOfMicroBatches) {
  const std::string more = replaced(kStagedImages, "accumulate: 8", "accumulate: 16");
  const auto in_turns = [&](const std::string& first, const std::string& second, int devices) {
    const TemporaryFolder folder(run::quick_folder());
    train_with(first, devices, folder.path(), 1, false);
    return train_with(second, devices, folder.path(), 0, true);
  };
  expect_same(in_turns(piped(kStagedImages), piped(more), 2), in_turns(kStagedImages, more, 1), "two stages");
}

TEST_F(PipelineRun, RowsOfSeveralLengthsPassThroughStagesToo) {
  std::string chats;
  for (int i = 0; i < 60; ++i)
    chats += chat_line(fmt::format("say {}", i), std::string(static_cast<size_t>(1 + i * 7 % 40), 'a'));
  write_file_atomically(folder_.path() / "chat.jsonl", chats);
  std::string yaml = replaced(words_, "lines.txt", "chat.jsonl");
  yaml = replaced(yaml, "context: 64", "context: 64, packing: false");
  yaml = replaced(yaml, "/config.json}",
                  fmt::format("/config.json, tokenizer: {}/model}}", folder_.path().string()));
  const run::Outcome want = train_with(yaml, 1);
  ASSERT_EQ(want.losses.size(), 6U);
  expect_same(train_with(piped(yaml), 2), want, "two stages");
}

/// The head's gradient comes back to the stage of the table.
TEST_F(PipelineRun, ATableThatIsTheHeadTooIsOfOneStage) {
  const fs::path config = folder_.path() / "model/config.json";
  std::string text = read_file(config);
  write_file_atomically(config, text.insert(1, "\"tie_word_embeddings\": true, "));
  const std::string yaml = words_ + "precision: bf16\n";
  expect_same(train_with(piped(yaml), 2), train_with(yaml, 1), "two stages");
}

TEST_F(PipelineRun, AnAdaptersStagesHaveTheFrozenWeightsThatTheyRead) {
  train_with(words_, 1, folder_.path() / "base", 0, false);
  std::string yaml =
      words_ + "precision: bf16\nadapter: {name: lora, rank: 2, dropout: 0.2, quantize: nf4}\n";
  const std::string config = fmt::format("config: {}/model/config.json", folder_.path().string());
  yaml = replaced(yaml, config, fmt::format("path: {}/base", folder_.path().string()));
  const run::Outcome want = train_with(yaml, 1);
  expect_same(train_with(piped(yaml), 2), want, "two stages");

  EngineOptions options = run::engine_options(
      tasks::Job(run::parse_recipe(piped(yaml), "test", std::vector<std::string>{"devices=2"})));
  options.backend = exec::Backend::null;
  int64_t frozen_bytes = 0;
  for (options.rank = 0; options.rank < 2; ++options.rank) {
    const planner::PlanReport stage = planner::make_plan_report(options);
    EXPECT_GT(stage.frozen_bytes, 0);
    frozen_bytes += stage.frozen_bytes;
  }
  options.num_workers = 1;
  EXPECT_EQ(frozen_bytes, planner::make_plan_report(options).frozen_bytes);
}

TEST_F(PipelineRun, MistakesAreNamed) {
  const auto refused = [&](const std::string& yaml, int devices, const char* part) {
    try {
      train_with(yaml, devices);
      ADD_FAILURE() << part;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
  };
  refused(piped(kStagedImages), 32, "try fewer devices");
  refused(piped(replaced(words_, "shards: 1", "shards: 2")), 2, "try parallel=data");
  const std::string one = replaced(words_, "accumulate: 8", "accumulate: 1");
  refused(piped(replaced(one, "batch: 2", "batch: 1")), 2, "try train.accumulate=8");
}

}  // namespace
}  // namespace hearth::engine
