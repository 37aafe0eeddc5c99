#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "engine/plan_builder.h"
#include "io/run_log.h"
#include "planner/plan_report.h"
#include "run/from_recipe.h"
#include "run/schedule.h"
#include "run/trainer.h"
#include "tasks/classify/classifier.h"
#include "temporary_folder.h"

namespace hearth::run {
namespace {

constexpr const char* kMlpRecipe = R"(
model: {name: mlp, num_classes: 10, hidden: [24, 16], dropout: 0.1}
data: {kind: shapes, image_size: 8, count: 70, val_count: 20, flip: true, crop_padding: 1}
train: {steps: 9, batch: 8, accumulate: 2, checkpoint_every: 3, ema: 0.9, clip_norm: 1}
optimizer: {name: adamw, lr: 0.01}
threads: 2
)";

/// The bytes of all weights and states, and the losses of the log, after a run that stops after `stop_after`
/// steps and then continues.
struct Outcome {
  std::vector<std::byte> memory;
  std::vector<double> losses;
};

Outcome run_with_stop(const fs::path& folder, int64_t stop_after) {
  const recipe::Recipe recipe = run::parse_recipe(kMlpRecipe, "test");
  std::atomic<bool> stop{false};
  int64_t steps = 0;
  TrainerEvents events{
      .progress = [](const Progress&) {}, .message = [](const std::string&) {}, .stop = &stop};
  if (stop_after > 0) {
    recipe::Recipe eager = recipe;
    eager.train.log_every = 1;
    events.progress = [&](const Progress&) { stop = ++steps == stop_after; };
    Trainer first(tasks::Job(eager), folder, events);
    EXPECT_TRUE(first.run(false).interrupted);
    stop = false;
    events.progress = [](const Progress&) {};
  }
  Trainer trainer(tasks::Job(recipe), folder, events);
  EXPECT_FALSE(trainer.run(stop_after > 0).interrupted);
  Outcome outcome;
  const auto memory = trainer.engine().state();
  outcome.memory.assign(memory.begin(), memory.end());
  for (const io::CurvePoint& point : io::read_curve(folder / "trainer_log.jsonl", "loss")) {
    outcome.losses.push_back(point.value);
  }
  return outcome;
}

TEST(Trainer, ResumeIsBitExact) {
  const TemporaryFolder whole;
  const Outcome want = run_with_stop(whole.path(), 0);
  ASSERT_EQ(want.losses.size(), 9U);
  for (const int64_t stop_after : {1, 5, 8}) {
    const TemporaryFolder folder;
    const Outcome got = run_with_stop(folder.path(), stop_after);
    EXPECT_EQ(got.memory, want.memory) << "stopped after " << stop_after;
    EXPECT_EQ(got.losses, want.losses) << "stopped after " << stop_after;
  }
}

/// Continues in another order from step 5 on, and stops again after those steps; 0: never.
Outcome run_in_another_order(const fs::path& folder, int64_t stop_after) {
  const recipe::Recipe recipe =
      run::parse_recipe(kMlpRecipe, "test", std::vector<std::string>{"train.log_every=1"});
  std::atomic<bool> stop{false};
  int64_t stop_at = 5;
  TrainerEvents events{.progress = [&](const Progress& progress) { stop = progress.step == stop_at; },
                       .message = [](const std::string&) {},
                       .stop = &stop};
  const auto train = [&](const RunStart& start) {
    stop = false;
    Trainer trainer(tasks::Job(recipe), folder, events);
    const bool interrupted = trainer.run(start).interrupted;
    EXPECT_EQ(interrupted, stop_at > 0);
    const auto memory = trainer.engine().state();
    return std::vector<std::byte>(memory.begin(), memory.end());
  };
  train({});
  stop_at = stop_after > 0 ? 5 + stop_after : 0;
  Outcome outcome{.memory = train({.resume = true, .new_order = true, .reason = "it failed"})};
  stop_at = 0;
  if (stop_after > 0) outcome.memory = train({.resume = true});
  for (const io::CurvePoint& point : io::read_curve(folder / "trainer_log.jsonl", "loss"))
    outcome.losses.push_back(point.value);
  return outcome;
}

TEST(Trainer, GoesOnInAnotherOrder) {
  const TemporaryFolder plain, whole, parts;
  const Outcome before = run_with_stop(plain.path(), 5);
  const Outcome want = run_in_another_order(whole.path(), 0);
  ASSERT_EQ(want.losses.size(), before.losses.size());
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(want.losses[i] == before.losses[i], i < 5) << i;
  const Outcome got = run_in_another_order(parts.path(), 2);
  EXPECT_EQ(got.memory, want.memory);
  EXPECT_EQ(got.losses, want.losses);
  const std::string log = read_file(parts.path() / "trainer_log.jsonl");
  EXPECT_NE(log.find("{\"current_steps\":5,\"event\":\"it failed\"}"), log.npos) << log;
  EXPECT_NE(log.find("from step 5 on, samples are shuffled again"), log.npos) << log;
}

TEST(Trainer, GoesOnWithThePaceAndTheTimeOfItsLog) {
  const TemporaryFolder folder;
  const recipe::Recipe recipe =
      run::parse_recipe(kMlpRecipe, "test", std::vector<std::string>{"train.log_every=1"});
  std::atomic<bool> stop{false};
  std::vector<Progress> told;
  const TrainerEvents events{.progress =
                                 [&](const Progress& progress) {
                                   told.push_back(progress);
                                   stop = told.size() == 6;
                                 },
                             .message = [](const std::string&) {},
                             .stop = &stop};
  Trainer(tasks::Job(recipe), folder.path(), events).run(false);
  // An update took a thousand seconds.
  std::string log;
  for (int step = 1; step <= 6; ++step)
    log += fmt::format("{{\"current_steps\":{},\"loss\":1,\"elapsed_time\":{}}}\n", step, 1000 * step);
  write_file_atomically(folder.path() / "trainer_log.jsonl", log);
  stop = false;
  told.clear();
  Trainer(tasks::Job(recipe), folder.path(), events).run(true);
  ASSERT_EQ(told.size(), 3U);
  EXPECT_EQ(told[0].step, 7);
  EXPECT_GT(told[0].eta_seconds, 2 * 900);
  EXPECT_LT(told[0].eta_seconds, 2 * 1100);
  const auto times = io::read_curve(folder.path() / "trainer_log.jsonl", "elapsed_time");
  ASSERT_EQ(times.size(), 9U);
  for (size_t i = 1; i < times.size(); ++i) EXPECT_GE(times[i].value, times[i - 1].value) << i;
}

TEST(Trainer, LeavesTheFilesOfARun) {
  const TemporaryFolder folder;
  run_with_stop(folder.path(), 0);
  for (const char* name :
       {"config.yaml", "model.safetensors", "best.safetensors", "trainer_log.jsonl", "report.html"}) {
    EXPECT_TRUE(fs::exists(folder.path() / name)) << name;
  }
  const recipe::Recipe again = run::load_recipe(folder.path() / "config.yaml");
  recipe::Recipe wanted = run::parse_recipe(kMlpRecipe, "test");
  EXPECT_EQ(again.model.class_names.size(), 10U);
  wanted.model.class_names = again.model.class_names;
  EXPECT_EQ(write_recipe(again), write_recipe(wanted));
}

/// Random images and labels.
struct Samples {
  std::vector<float> images;
  std::vector<int32_t> labels;
  Samples(int64_t count, int64_t pixels)
      : images(static_cast<size_t>(count * pixels) + 16), labels(static_cast<size_t>(count) + 16) {
    PhiloxSequence random(3, 0);
    for (float& value : images) value = random.uniform(-1, 1);
    for (int32_t& label : labels) label = static_cast<int32_t>(random.below(10));
  }
};

engine::EngineOptions small_engine(const char* model, int64_t image_size = 16) {
  return {.objective = tasks::classifier(
              {.model = {.name = model, .image_size = image_size, .hidden = {12}, .dropout = 0}}),
          .batch = 6,
          .seed = 5,
          .num_threads = 2};
}

double weights_after(const engine::EngineOptions& options, const std::vector<int64_t>& sizes,
                     std::vector<float>* weights, int64_t image_size = 16) {
  engine::Engine engine(options, sizes, {});
  engine.initialize();
  const int64_t pixels = image_size * image_size * 3;
  const Samples samples(16, pixels);
  double loss = 0;
  for (int64_t step = 0; step < 3; ++step) {
    int64_t done = 0;
    size_t next_size = 0;
    const auto next = [&] {
      const int64_t count = sizes[std::min(next_size++, sizes.size() - 1)];
      const engine::MicroBatch batch{
          {{"images", samples.images.data() + done * pixels}, {"labels", samples.labels.data() + done}},
          count};
      done += count;
      return batch;
    };
    int64_t total = 0;
    for (const int64_t size : sizes) total += size;
    loss = engine.train_step(std::ssize(sizes), total, next, step, 0.1).loss;
  }
  for (const nn::Tensor& tensor : engine.plan().tensors) {
    const auto values = engine::values(engine, tensor.name);
    weights->insert(weights->end(), values.begin(), values.end());
  }
  return loss;
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "element " << i;
}

TEST(Engine, AccumulationEqualsTheLargeBatch) {
  // Without batch norm, whose statistics are those of a micro-batch; the last one is smaller.
  engine::EngineOptions options = small_engine("simplecnn");
  std::vector<float> whole;
  std::vector<float> parts;
  const double want = weights_after(options, {14}, &whole);
  options.accumulate = 3;
  const double got = weights_after(options, {6, 6, 2}, &parts);
  EXPECT_NEAR(got, want, 1e-5);
  expect_close(parts, whole, 1e-5);
}

TEST(SlowEngine, SwitchingAPassOffChangesNothingBeyondRounding) {
  for (const char* model : {"simplecnn", "smallcnn", "mlp", "resnet18"}) {
    std::vector<float> all;
    engine::EngineOptions options = small_engine(model);
    options.optimizer.momentum = 0;
    weights_after(options, {6}, &all);
    for (const passes::Pass& pass : passes::pass_list()) {
      if (pass.required) continue;
      options.passes_off = {std::string(pass.name)};
      std::vector<float> without;
      weights_after(options, {6}, &without);
      SCOPED_TRACE(fmt::format("{} without {}", model, pass.name));
      expect_close(without, all, 2e-3);
    }
  }
}

/// Trains with the arena held to a share of what it needs when nothing is made again.
void expect_same_weights_within(engine::EngineOptions options, int64_t image_size, int64_t percent) {
  std::vector<float> free_weights;
  weights_after(options, {options.batch}, &free_weights, image_size);
  const int64_t sizes[] = {options.batch};
  options.budget_bytes = engine::make_plan(options, sizes, {}).arena_bytes * percent / 100;
  const engine::Plan plan = engine::make_plan(options, sizes, {});
  EXPECT_TRUE(plan.recompute.fits);
  EXPECT_GT(plan.recompute.num_recomputed, 0);
  std::vector<float> tight_weights;
  weights_after(options, {options.batch}, &tight_weights, image_size);
  expect_close(tight_weights, free_weights, 1e-5);
}

TEST(SlowEngine, RecomputationMeetsItsBudgetAndChangesNoWeight) {
  engine::EngineOptions options = small_engine("resnet18", 32);
  options.batch = 16;
  expect_same_weights_within(options, 32, 80);
}

TEST(Plan, RecomputationHalvesTheArenaOfResNets) {
  for (const char* model : {"resnet18", "resnet50"}) {
    engine::EngineOptions options = small_engine(model, 32);
    options.batch = 64;
    const int64_t free_bytes = planner::make_plan_report(options).arena_bytes;
    options.budget_bytes = free_bytes * 54 / 100;
    const planner::PlanReport tight = planner::make_plan_report(options);
    EXPECT_TRUE(tight.recompute.fits) << model << ": " << tight.recompute.peak_after_bytes;
    EXPECT_LT(tight.arena_bytes, free_bytes * 55 / 100) << model;
  }
}

TEST(Schedule, MatchesTorch) {
  // torch.optim.lr_scheduler: OneCycleLR (10 steps), CosineAnnealingLR (8 steps to 0.01), StepLR (3, 0.5);
  // base 0.1.
  using Kind = recipe::ScheduleKind;
  const auto expect = [](const recipe::Schedule& schedule, int64_t total, const std::vector<double>& want) {
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(learning_rate(schedule, 0.1, static_cast<int64_t>(i), total), want[i], 1e-12)
          << name_of(schedule.name) << i;
    }
  };
  expect({.name = Kind::onecycle}, 10,
         {.004, .052, .1, .09504846320134738, .0811745653949763, .06112620219362893, .03887419780637107,
          .0188258346050237, .004951936798652629, 4e-7});
  expect({.name = Kind::cosine, .min_lr = .01}, 8,
         {.1, .0965745789630079, .08681980515339463, .07222075445642905, .055, .03777924554357096,
          .023180194846605363, .013425421036992097});
  expect({.name = Kind::step, .step_size = 3, .gamma = .5}, 8, {.1, .1, .1, .05, .05, .05, .025, .025});
}

}  // namespace
}  // namespace hearth::run
