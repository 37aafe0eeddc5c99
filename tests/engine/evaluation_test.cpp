#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/group_run.h"
#include "hub/weights.h"
#include "io/safetensors.h"
#include "paths.h"

namespace hearth::engine {
namespace {

using testing::ElementsAre;

constexpr const char* kImages = R"(
model: {name: mlp, num_classes: 10, hidden: [16], dropout: 0.1}
data: {kind: shapes, image_size: 8, count: 64, val_count: 40, flip: true}
train: {steps: 9, batch: 4, accumulate: 2, checkpoint_every: 4, log_every: 1}
optimizer: {name: adamw, lr: 0.01}
threads: 1
)";
constexpr const char* kText = "steps: 9, batch: 2, accumulate: 4, checkpoint_every: 4, log_every: 1";

/// A recipe that evaluates first and then every two updates; an epoch has eight.
std::string often(const std::string& yaml) {
  return replaced(yaml, "checkpoint_every: 4", "checkpoint_every: 4, eval_on_start: true, eval_every: 2");
}

std::vector<int64_t> eval_steps(const fs::path& run) {
  std::vector<int64_t> steps;
  for (const io::CurvePoint& point : io::read_curve(run / "trainer_log.jsonl", "eval_loss"))
    steps.push_back(point.step);
  return steps;
}

/// Weights and states have the same bits and losses as without evaluations, whole and in two parts.
void expect_evaluations_change_nothing(const std::string& plain, const std::string& often, int devices) {
  const TemporaryFolder whole(run::quick_folder());
  const run::Outcome want = train_with(plain, devices);
  ASSERT_EQ(want.losses.size(), 9U);
  expect_same(train_with(often, devices, whole.path(), 0, false), want, "whole");
  EXPECT_THAT(eval_steps(whole.path()), ElementsAre(0, 2, 4, 6, 8, 9));
  const std::string log = read_file(whole.path() / "trainer_log.jsonl");
  for (const int64_t stop_after : {1, 5}) {
    const TemporaryFolder parts(run::quick_folder());
    train_with(often, devices, parts.path(), stop_after, false);
    expect_same(train_with(often, devices, parts.path(), 0, true), want, "in two parts");
    EXPECT_THAT(eval_steps(parts.path()), ElementsAre(0, 2, 4, 6, 8, 9)) << stop_after;
    for (const char* key : {"eval_loss", "loss"}) {
      const auto whole_curve = io::read_curve(whole.path() / "trainer_log.jsonl", key);
      const auto curve = io::read_curve(parts.path() / "trainer_log.jsonl", key);
      ASSERT_EQ(curve.size(), whole_curve.size());
      for (size_t i = 0; i < curve.size(); ++i) EXPECT_EQ(curve[i].value, whole_curve[i].value) << key << i;
    }
    EXPECT_EQ(read_file(parts.path() / "best.safetensors"), read_file(whole.path() / "best.safetensors"));
  }
}

TEST(Evaluations, OfImagesChangeNoBit) {
  expect_evaluations_change_nothing(kImages, often(kImages), 1);
  expect_evaluations_change_nothing(kImages, often(kImages), 2);
}

TEST(Evaluations, OfALanguageModelChangeNoBit) {
  const TemporaryFolder data(run::quick_folder());
  const std::string plain = words_recipe(data.path(), kText);
  for (const char* parallel : {"data", "zero1", "sharded", "pipeline"}) {
    const std::string way = fmt::format("parallel: {}\n", parallel);
    expect_evaluations_change_nothing(plain + way, often(plain) + way, 2);
  }
  expect_evaluations_change_nothing(plain, often(plain), 1);
}

TEST(Evaluations, OfTheFirstWeightsAreInLogReportAndEvents) {
  const TemporaryFolder folder(run::quick_folder());
  std::vector<std::string> messages;
  const run::TrainerEvents events{.progress = [](const run::Progress&) {},
                                  .message = [&](const std::string& text) { messages.push_back(text); }};
  run::Trainer(tasks::Job(run::parse_recipe(often(kImages), "test")), folder.path(), events).run(false);
  EXPECT_THAT(messages, testing::Contains(testing::StartsWith("step 0: validation loss ")));
  EXPECT_EQ(io::read_curve(folder.path() / "trainer_log.jsonl", "eval_accuracy").size(), 6U);
  std::string event_files;
  for (const fs::path& path : list_folder(folder.path())) {
    if (path.filename().string().starts_with("events.")) event_files += read_file(path);
  }
  size_t count = 0;
  for (size_t at = event_files.find("eval/loss"); at != event_files.npos;
       at = event_files.find("eval/loss", at + 1))
    ++count;
  EXPECT_EQ(count, 6U);
  EXPECT_NE(read_file(folder.path() / "report.html").find("<svg"), std::string::npos);
}

TEST(Evaluations, TheFirstWeightsMayBeTheBest) {
  const TemporaryFolder data(run::quick_folder());
  const std::string yaml = often(words_recipe(data.path(), kText));
  // Weights that know something, which so high a rate makes them forget.
  train_with(replaced(yaml, "steps: 9", "steps: 60"), 1, data.path() / "learnt", 0, false);
  for (const char* ema : {"train.ema=0", "train.ema=0.9"}) {
    const TemporaryFolder folder(run::quick_folder());
    const run::TrainerEvents events{.progress = [](const run::Progress&) {},
                                    .message = [](const std::string&) {}};
    const std::vector<std::string> overrides = {
        "optimizer.lr=1", "train.steps=4", ema,
        "init=" + (data.path() / "learnt/model.safetensors").string()};
    run::Trainer trainer(tasks::Job(run::parse_recipe(yaml, "test", overrides)), folder.path(), events);
    const run::RunSummary summary = trainer.run(false);
    const auto curve = io::read_curve(folder.path() / "trainer_log.jsonl", "eval_loss");
    ASSERT_EQ(curve.size(), 3U);
    const auto best = std::ranges::min_element(curve, {}, &io::CurvePoint::value);
    EXPECT_EQ(best->step, 0) << "the test needs weights that get worse";
    EXPECT_EQ(summary.best_score, -best->value);
    hub::load_weights(trainer.engine(), folder.path() / "best.safetensors");
    EXPECT_EQ(trainer.evaluate().loss, best->value) << ema;
  }
}

TEST(Evaluations, TheFirstOneCountsForStoppingEarly) {
  const TemporaryFolder folder(run::quick_folder());
  const run::TrainerEvents events{.progress = [](const run::Progress&) {},
                                  .message = [](const std::string&) {}};
  const std::vector<std::string> overrides = {"optimizer.lr=0", "train.early_stop=2"};
  run::Trainer trainer(
      tasks::Job(run::parse_recipe(often(words_recipe(folder.path(), kText)), "test", overrides)),
      folder.path() / "run", events);
  // Two evaluations that are no better than that of the first weights.
  EXPECT_EQ(trainer.run(false).steps, 4);
}

TEST(Context, IsTheSameForRunsAndForModels) {
  const int64_t context = recipe::Recipe().data.context;
  for (const char* name : {"llama-lora", "llama-full", "llama-dpo"}) {
    const fs::path file = fs::path(kSourceDir) / "recipes" / (std::string(name) + ".yaml");
    EXPECT_EQ(run::load_recipe(file, std::vector<std::string>{"model.path=./x"}).data.context, context)
        << name;
  }
}

}  // namespace
}  // namespace hearth::engine
