#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "run/stopped_run.h"
#include "tasks/language/language_recipe.h"
#include "tasks/preference/preference_task.h"
#include "tiny_language_model.h"

namespace hearth::tasks {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

PreferenceTask preferences_of(const recipe::Recipe& recipe) { return PreferenceTask(Job(recipe)); }

class Preferences : public testing::Test {
 protected:
  Preferences() {
    write_tiny_model(at("model"));
    std::string lines;
    for (size_t i = 0; i < 22; ++i)
      lines += preference_line("n" + std::to_string(i), std::string(1 + i * 5 % 17, 'a'),
                               std::string(1 + i * 7 % 23, 'b'));
    put("pairs.jsonl", lines);
  }

  fs::path at(const std::string& name) const { return folder_.path() / name; }
  void put(const std::string& name, const std::string& text) const { write_file_atomically(at(name), text); }

  recipe::Recipe recipe(const std::vector<std::string>& overrides = {}) const {
    const std::string yaml = fmt::format(
        "model: {{config: {}}}\n"
        "data: {{path: {}, cache: {}, context: 64, val_share: 0.25}}\n"
        "train: {{objective: dpo, batch: 2, log_every: 1}}\n"
        "optimizer: {{name: adamw, lr: 0.01}}\nthreads: 1\nseed: 3\n",
        at("model/config.json").string(), at("pairs.jsonl").string(), at("cache").string());
    return run::parse_recipe(yaml, "test", overrides);
  }
  run::Trainer trainer(const recipe::Recipe& recipe, const char* run) const {
    return {tasks::Job(recipe),
            at(run),
            {.progress = [](const run::Progress&) {}, .message = [](const std::string&) {}}};
  }

  TemporaryFolder folder_{run::quick_folder()};
};

/// The labels of an answer as text; the end of a turn is '#'.
std::string labels(const engine::MicroBatch& batch, int64_t answer) {
  std::string text;
  const auto* first = batch.array<int32_t>("labels") + answer * batch.row_length;
  for (int64_t i = 0; i < batch.row_length; ++i) {
    if (first[i] >= 0) text += first[i] < 95 ? static_cast<char>(first[i] + 32) : '#';
  }
  return text;
}

TEST_F(Preferences, AnswersLieSideBySideAndTheLossCountsNothingElse) {
  put("pairs.jsonl", preference_line("hi", "yes", "never") + preference_line("b", "no", "x") +
                         preference_line("c", "d", "e"));
  const PreferenceTask task = preferences_of(recipe({"data.shuffle=false", "data.val_share=0.3"}));
  EXPECT_EQ(task.num_rows(), 2);
  EXPECT_EQ(task.num_eval_rows(), 1);
  EXPECT_EQ(task.num_samples({.seed = 3}, 2), 2);
  const auto stream = task.open({.seed = 3});
  const engine::MicroBatch batch = stream->next();
  ASSERT_EQ(batch.num_rows, 2);
  const std::vector<std::string> found = {labels(batch, 0), labels(batch, 1), labels(batch, 2),
                                          labels(batch, 3)};
  EXPECT_THAT(found, ElementsAre("yes#", "never#", "no#", "x#"));
}

TEST_F(Preferences, APairNeedsBothAnswers) {
  std::string lines = preference_line("a", "b", "c") + preference_line(std::string(50, 'a'), "b", "c");
  lines += preference_line("a", "b", std::string(60, 'c')) + preference_line("a", "c", "b");
  put("pairs.jsonl", lines);
  const PreferenceTask cut = preferences_of(recipe());
  EXPECT_THAT(cut.describe(),
              HasSubstr("2 pairs of answers of at most 64 tokens, 1 cut, 1 without anything"));
  const PreferenceTask dropped = preferences_of(recipe({"data.overlong=drop"}));
  EXPECT_EQ(dropped.num_rows(), 1) << dropped.describe();
}

TEST_F(Preferences, TheStartingModelHasNoPreference) {
  run::Trainer made = trainer(recipe({"dpo.label_smoothing=0.1", "train.steps=6"}), "run");
  const Evaluation blind = made.task().evaluate(made.engine(), 0);
  EXPECT_GT(std::abs(blind.loss - std::log(2.0)), 1e-3) << "without its own log-probabilities it has";
  made.run(false);
  const std::vector<io::CurvePoint> losses = io::read_curve(at("run/trainer_log.jsonl"), "loss");
  EXPECT_NEAR(losses.front().value, std::log(2.0), 1e-5);
  EXPECT_LT(losses.back().value, 0.69);
  const auto curve = [&](const char* name) {
    return io::read_curve(at("run/trainer_log.jsonl"), std::string("eval_rewards/") + name).back().value;
  };
  EXPECT_NEAR(curve("margins"), curve("chosen") - curve("rejected"), 1e-9);
  EXPECT_GT(curve("accuracies"), 0.5);
}

TEST_F(Preferences, AModelThatDoesNotMoveIsJudgedIndifferent) {
  trainer(recipe({"train.steps=1", "optimizer.lr=1e-30", "optimizer.weight_decay=0"}), "run").run(false);
  const auto last = [&](const char* name) {
    return io::read_curve(at("run/trainer_log.jsonl"), name).back().value;
  };
  EXPECT_NEAR(last("eval_loss"), std::log(2.0), 1e-6);
  EXPECT_EQ(last("eval_rewards/chosen"), 0);
  EXPECT_EQ(last("eval_rewards/accuracies"), 0);
}

TEST_F(Preferences, ResumeIsBitExactAndComputesNoReference) {
  trainer(recipe({"train.steps=1"}), "base").run(false);
  const std::vector<std::string> quantized = {"model.config=", "model=" + at("base").string(), "adapter=lora",
                                              "adapter.rank=2", "adapter.quantize=nf4"};
  for (std::vector<std::string> all : {std::vector<std::string>{}, quantized}) {
    all.insert(all.end(), {"train.epochs=2", "train.accumulate=2"});
    const recipe::Recipe two = recipe(all);
    const run::Outcome want = run::run_with_stop(two, 0);
    EXPECT_THAT(want.messages, Contains(HasSubstr("the reference log-probabilities of 22 pairs")));
    const auto epoch = std::ssize(want.losses) / 2;
    ASSERT_GT(epoch, 2);
    for (const int64_t stop_after : {int64_t{1}, epoch, epoch + 1}) {
      const run::Outcome got = run::run_with_stop(two, stop_after);
      EXPECT_EQ(got.memory, want.memory) << "stopped after " << stop_after;
      EXPECT_EQ(got.losses, want.losses) << "stopped after " << stop_after;
      EXPECT_THAT(got.messages, Not(Contains(HasSubstr("reference log-probabilities"))));
    }
  }
}

TEST_F(Preferences, ARunGoesOnWithItsOwnPairsOnly) {
  trainer(recipe({"train.steps=2"}), "run").run(false);
  const auto resume = [&](const std::vector<std::string>& keys) -> std::string {
    try {
      trainer(recipe(keys), "run").run(true);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(resume({"train.steps=3"}), "");
  EXPECT_THAT(resume({"data.val_share=0.3"}), HasSubstr("16 rows per epoch, but the data has 15"));
  EXPECT_THAT(resume({"data.template=plain"}), HasSubstr("reference.safetensors"));
  fs::remove(at("run/reference.safetensors"));
  EXPECT_THAT(resume({"train.steps=4"}), HasSubstr("reference.safetensors"));
}

TEST_F(Preferences, LongerAndShorterPairsShareAStep) {
  const PreferenceTask task = preferences_of(recipe());
  EXPECT_THAT(task.row_lengths(), ElementsAre(64, 32));
  std::vector<double> losses[2];
  for (const int i : {0, 1}) {
    const char* batch = i == 0 ? "train.batch=1" : "train.batch=4";
    const char* accumulate = i == 0 ? "train.accumulate=4" : "train.accumulate=1";
    trainer(recipe({batch, accumulate, "train.steps=4"}), batch).run(false);
    for (const io::CurvePoint& point : io::read_curve(at(batch) / "trainer_log.jsonl", "loss"))
      losses[i].push_back(point.value);
  }
  ASSERT_EQ(losses[0].size(), 4U);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(losses[0][i], losses[1][i], 1e-5);
}

}  // namespace
}  // namespace hearth::tasks
