#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "hub/weights.h"
#include "io/run_log.h"
#include "run/from_recipe.h"
#include "run/trainer.h"
#include "tasks/classify/classifier.h"
#include "temporary_folder.h"

namespace hearth::run {
namespace {

constexpr const char* kRecipe = R"(
model: {name: mlp, num_classes: 10, hidden: [16]}
data: {kind: shapes, image_size: 8, count: 64, val_count: 40}
train: {steps: 8, batch: 8, log_every: 1, eval_every: 4}
threads: 2
)";

Trainer make_trainer(const TemporaryFolder& folder, const std::vector<std::string>& overrides) {
  return {tasks::Job(run::parse_recipe(kRecipe, "test", overrides)),
          folder.path(),
          {.progress = [](const Progress&) {}, .message = [](const std::string&) {}}};
}

TEST(Run, GoesOnThroughOverflowsOfTheLossScale) {
  const TemporaryFolder folder;
  Trainer trainer = make_trainer(folder, std::vector<std::string>{"precision=fp16"});
  engine::values(trainer.engine(), engine::kLossScale)[0] = std::ldexp(1.0F, 30);
  EXPECT_EQ(trainer.run(false).steps, 8);
  EXPECT_GT(engine::values(trainer.engine(), engine::kLossScale)[2], 0);
  EXPECT_EQ(io::read_curve(folder.path() / "trainer_log.jsonl", "loss").size(), 8U);
  EXPECT_LT(io::read_curve(folder.path() / "trainer_log.jsonl", "grad_norm").size(), 8U);
}

TEST(Run, StopsEarlyWhenNothingImproves) {
  const TemporaryFolder folder;
  Trainer trainer =
      make_trainer(folder, {"optimizer.lr=0", "train.steps=100", "train.eval_every=3", "train.early_stop=2"});
  // The first evaluation is the best; the next two are no better.
  EXPECT_EQ(trainer.run(false).steps, 9);
}

TEST(Run, TheBestWeightsAreThoseOfTheBestEvaluation) {
  for (const char* ema : {"train.ema=0", "train.ema=0.8"}) {
    const TemporaryFolder folder;
    Trainer trainer = make_trainer(folder, {"train.steps=60", "train.eval_every=2", "optimizer.lr=0.4", ema});
    const RunSummary summary = trainer.run(false);
    const auto curve = io::read_curve(folder.path() / "trainer_log.jsonl", "eval_accuracy");
    const auto best = std::ranges::max_element(curve, {}, &io::CurvePoint::value);
    EXPECT_EQ(summary.best_score, best->value);
    EXPECT_NE(best->value, curve.back().value) << "the test needs a best that is not the last";
    hub::load_weights(trainer.engine(), folder.path() / "best.safetensors");
    EXPECT_EQ(trainer.evaluate().score, best->value) << ema;
  }
}

/// A few steps of a small network on one batch of noise; `look` sees the engine before and after each.
void train_on_noise(const std::string& model, const engine::OptimizerOptions& optimizer, double rate,
                    const std::function<void(engine::Engine&, const engine::StepResult*)>& look) {
  constexpr int64_t kBatch = 8;
  constexpr int64_t kPixels = 8 * 8 * 3;
  const std::array sizes{kBatch};
  engine::EngineOptions options{.objective = tasks::classifier({.model = {.name = model, .image_size = 8}}),
                                .optimizer = optimizer};
  options.num_threads = 2;
  engine::Engine engine(options, sizes, {});
  engine.initialize();
  std::vector<float> images(kBatch * kPixels + 16);
  std::vector<int32_t> labels(kBatch + 16);
  PhiloxSequence random(3, 0);
  for (float& value : images) value = random.uniform(-1, 1);
  for (int32_t& label : labels) label = static_cast<int32_t>(random.below(10));
  const auto next = [&] {
    return engine::MicroBatch{{{"images", images.data()}, {"labels", labels.data()}}, kBatch};
  };
  for (int64_t step = 0; step < 4; ++step) {
    look(engine, nullptr);
    const engine::StepResult result = engine.train_step(1, kBatch, next, step, rate);
    look(engine, &result);
  }
}

std::vector<float> all_weights(const engine::Engine& engine, const std::string& prefix) {
  std::vector<float> all;
  for (const nn::Tensor& tensor : engine.plan().tensors) {
    const std::span<float> values = engine::values(engine, prefix + tensor.name);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(Update, ClippingBoundsTheGlobalNorm) {
  std::vector<double> norms;
  for (const double limit : {0.0, 0.1}) {
    std::vector<float> before;
    train_on_noise("simplecnn", {.momentum = 0, .clip_norm = limit}, 0.5,
                   [&](engine::Engine& engine, const engine::StepResult* result) {
                     const std::vector<float> now = all_weights(engine, "");
                     double squares = 0;
                     for (size_t i = 0; i < before.size(); ++i)
                       squares += std::pow(double{now[i]} - before[i], 2);
                     before = now;
                     if (result == nullptr) return;
                     const double used = limit > 0 ? std::min(limit, result->grad_norm) : result->grad_norm;
                     EXPECT_NEAR(std::sqrt(squares), 0.5 * used, 1e-4 * used);
                     norms.push_back(result->grad_norm);
                   });
  }
  EXPECT_GT(norms[4], 0.1) << "the logged norm is the one before clipping";
  EXPECT_EQ(norms[4], norms[0]);
}

class Average : public testing::TestWithParam<const char*> {};

TEST_P(Average, FollowsWeightsAndRunningStatistics) {
  std::vector<float> average;
  float count = 0;
  train_on_noise(GetParam(), {.ema_decay = 0.35}, 0.1,
                 [&](engine::Engine& engine, const engine::StepResult* result) {
                   const std::vector<float> weights = all_weights(engine, "");
                   const std::vector<float> found = all_weights(engine, "ema/");
                   if (average.empty()) average = weights;
                   if (result != nullptr) ++count;
                   // Less than 0.35 in the first three steps.
                   const float decay = std::min(0.35F, (1 + count) / (10 + count));
                   for (size_t i = 0; i < weights.size(); ++i) {
                     if (result != nullptr) average[i] = decay * average[i] + (1 - decay) * weights[i];
                     ASSERT_NEAR(found[i], average[i], 1e-6 * std::max(1.0F, std::abs(average[i]))) << i;
                   }
                 });
}

INSTANTIATE_TEST_SUITE_P(Models, Average, testing::Values("simplecnn", "smallcnn"));

TEST(RunState, OfAFileIsRefusedWhereItCountsNothing) {
  RunState state{.step = 7, .best_score = -1.5};
  state.position = {.epoch = 1, .sample = 40, .total = 100, .num_changes = 2, .num_changes_here = 2};
  state.position.changed_at = {8, 24};
  const StateText written = write_run_state(state);
  const std::string good(written.data(), written.size());
  EXPECT_EQ(parse_run_state(good, "state").position.changed_at, state.position.changed_at);
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"\"step\":7", "\"step\":-7"},
      {"\"step\":7", "\"step\":7.5"},
      {"\"step\":7", "\"step\":\"7\""},
      {"\"step\":7", "\"step\":18446744073709551615"},
      {"\"sample\":40", "\"sample\":-40"},
      {"\"sample\":40", "\"sample\":20"},
      {"[8,24]", "[24,8]"},
      {"[8,24]", "[-9223372036854775807,24]"},
      {"[8,24]", "[8,1000000]"},
      {"[8,24]", "[8,24,30]"},
      {"[8,24]", "7"},
      {"\"num_order_changes\":2", "\"num_order_changes\":1"}};
  for (const auto& [from, to] : changes) {
    std::string bad = good;
    ASSERT_NE(bad.find(from), bad.npos) << from;
    bad.replace(bad.find(from), from.size(), to);
    EXPECT_THROW(parse_run_state(bad, "state"), UserError) << bad;
  }
}

}  // namespace
}  // namespace hearth::run
