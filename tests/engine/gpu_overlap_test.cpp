// Copies beside computing on an emulated GPU: whatever stream gets ahead, the bits are those of plain runs.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "engine/gpu_course.h"
#include "engine/inspect.h"
#include "planner/plan_report.h"
#include "run/from_recipe.h"
#include "run/trainer.h"

namespace hearth::engine {
namespace {

constexpr int64_t kFewSteps = 3;

class GpuOverlap : public GpuTraining {
 protected:
  static emu::GpuSettings ahead(uint64_t seed) { return {.order_seed = seed}; }

  static EngineOptions offloading(EngineOptions options) {
    options.offload = {.states = true, .weights = true, .activations = true, .min_bytes = 64};
    options.device.link_bytes_per_second = 1e15;
    options.budget_bytes = planner::make_plan_report(on_gpu(options)).arena_bytes * 7 / 10;
    return options;
  }
  /// Every node has a kernel for GPUs.
  static EngineOptions whole() {
    EngineOptions options = on_gpu(images());
    options.optimizer.momentum = 0;
    return options;
  }
};

TEST_F(GpuOverlap, OffloadChangesNoBit) {
  for (const int64_t accumulate : {1, 2}) {
    EngineOptions options = text();
    options.accumulate = accumulate;
    const auto want = Course(on_gpu(options)).state_after(kFewSteps);
    options = offloading(options);
    EXPECT_GT(planner::make_plan_report(on_gpu(options)).recompute.num_stashed, 0);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      emu::gpus() = {ahead(seed)};
      EXPECT_EQ(Course(on_gpu(options)).state_after(kFewSteps), want) << "order " << seed;
    }
    emu::gpus() = {{}};
  }
}

TEST_F(GpuOverlap, WhatIsOffloadedTakesNoMemoryOfTheGpu) {
  EngineOptions options = on_gpu(text());
  const int64_t all = Course(options).engine().plan().gpu_bytes();
  options.offload = {.states = true, .min_bytes = 64};
  emu::gpus() = {{.memory_bytes = Course(options).engine().plan().gpu_bytes()}};
  EXPECT_LT(emu::gpus()[0].memory_bytes, all);
  EXPECT_NO_THROW(Course(options).step());
  options.offload = {};
  EXPECT_THROW(Course(options).step(), UserError);
}

TEST_F(GpuOverlap, WhatTheHostWritesReachesWhatIsOffloaded) {
  const EngineOptions options = on_gpu(offloading(text()));
  Course course(options), other(options);
  const auto kept = course.state_after(2);
  other.step();
  other.step();
  std::ranges::fill(other.engine().state(), std::byte{0});
  std::ranges::copy(kept, other.engine().state().begin());
  EXPECT_EQ(other.step().loss, course.step().loss);
  EXPECT_TRUE(std::ranges::equal(other.engine().state(), course.engine().state()));
}

TEST_F(GpuOverlap, InputsOfTheNextMicroBatchDisturbNothing) {
  EngineOptions options = whole();
  options.accumulate = 5;
  const auto want = Course(options).state_after(kFewSteps);
  for (uint64_t seed = 1; seed < 8; ++seed) {
    emu::gpus() = {ahead(seed)};
    EXPECT_EQ(Course(options).state_after(kFewSteps), want) << "order " << seed;
  }
}

TEST_F(GpuOverlap, AStepOfKernelsAloneIsRecorded) {
  Course course(whole());
  ASSERT_EQ(course.engine().plan().train_program().num_host_nodes, 0);
  const auto want = course.state_after(kFewSteps);
  EXPECT_TRUE(Inspector(course.engine()).is_recorded());
  emu::gpus() = {{.cannot_record = true}};
  Course plain(whole());
  EXPECT_EQ(plain.state_after(kFewSteps), want);
  EXPECT_FALSE(Inspector(plain.engine()).is_recorded());
}

TEST_F(GpuOverlap, AStepWhoseRecordingLosesANodeIsQueued) {
  EngineOptions options = whole();
  options.accumulate = 2;
  const auto want = Course(options).state_after(kFewSteps);
  for (const int64_t lost : {0, 3, 7, 11}) {
    emu::gpus() = {{.lost_node = lost}};
    Course course(options);
    EXPECT_EQ(course.state_after(kFewSteps), want) << "without node " << lost;
    EXPECT_THAT(std::string(course.engine().device().recording_fault), testing::HasSubstr("other bits"));
    EXPECT_FALSE(Inspector(course.engine()).is_recorded());
  }
  options.gpu.record = RecordMode::always;
  emu::gpus() = {{.lost_node = 3}};
  EXPECT_NE(Course(options).state_after(kFewSteps), want) << "the lost node shows";
}

TEST_F(GpuOverlap, TheGpuItselfKeepsWeightsFromGradientsThatAreNotFinite) {
  for (const int64_t accumulate : {1, 2}) {
    EngineOptions options = whole();
    options.accumulate = accumulate;
    Course course(options);
    const auto before = course.state_after(2);
    std::vector<float> images(kBatch * 8 * 8 * 3 + kSlack, std::nanf(""));
    MicroBatch broken = course.batch();
    broken.arrays[0].data = images.data();
    const StepResult result = course.engine().train_step(
        accumulate, accumulate * kBatch, [&] { return broken; }, 3, 0.01);
    EXPECT_TRUE(result.skipped);
    EXPECT_TRUE(std::isnan(result.loss));
    for (const nn::Tensor& tensor : course.engine().plan().tensors) {
      const exec::PersistentBuffer& buffer = course.engine().plan().layout->at(tensor.name);
      const auto num_bytes = static_cast<size_t>(buffer.type.num_bytes());
      if (!tensor.trainable) continue;
      EXPECT_EQ(
          std::memcmp(course.engine().data(buffer), &before[static_cast<size_t>(buffer.offset)], num_bytes),
          0)
          << tensor.name;
    }
    EXPECT_FALSE(course.step().skipped);
    EXPECT_THAT(Inspector(course.engine()).find_not_finite(broken, 3, 0), testing::HasSubstr("the data"));
  }
}

TEST_F(GpuOverlap, TheLossScaleIsReadAlone) {
  EngineOptions options = whole();
  options.precision = DType::f16;
  Course course(options), asked(options);
  const auto want = course.state_after(kFewSteps);
  emu::gpus() = {{.link_bytes_per_second = 1e12}};
  for (int i = 0; i < kFewSteps; ++i) {
    asked.step();
    EXPECT_EQ(loss_scale(asked.engine()), 65536);
  }
  EXPECT_TRUE(std::ranges::equal(asked.engine().state(), want));
}

/// A run of a tiny model on an emulated GPU.
recipe::Recipe tiny_run(const std::vector<std::string>& more) {
  std::vector<std::string> overrides = {"device=emulated",   "self_test=never", "model=mlp",
                                        "model.hidden=[16]", "data=shapes",     "data.image_size=20",
                                        "data.val_count=8",  "train.batch=4",   "schedule=constant"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return run::parse_recipe("", "a test", overrides);
}

TEST_F(GpuOverlap, ARunThatGoesOnTakesUpWhereItsDataStood) {
  const TemporaryFolder folder;
  const auto weights_after = [&](const char* name, std::initializer_list<int64_t> ends) {
    const fs::path out = folder.path() / name;
    for (const int64_t end : ends) {
      run::Trainer(tasks::Job(tiny_run({"train.accumulate=2", "train.steps=" + std::to_string(end)})), out,
                   {[](const run::Progress&) {}, [](const std::string&) {}, nullptr})
          .run(end != *ends.begin());
    }
    return read_file(out / "model.safetensors");
  };
  EXPECT_EQ(weights_after("halves", {3, 6}), weights_after("whole", {6}));
}

TEST_F(GpuOverlap, ARunSaysOnceThatItsRecordingsAreLeftOff) {
  const TemporaryFolder folder;
  std::vector<std::string> warnings;
  const auto weights_with = [&](const char* record) {
    const fs::path out = folder.path() / record;
    run::TrainerEvents events{.progress = [](const run::Progress&) {},
                              .message = [](const std::string&) {},
                              .warning = [&](const std::string& text) { warnings.push_back(text); }};
    run::Trainer(tasks::Job(tiny_run({"data.count=40", "train.steps=6", "optimizer.momentum=0",
                                      std::string("record=") + record})),
                 out, std::move(events))
        .run(false);
    return read_file(out / "model.safetensors");
  };
  const std::string want = weights_with("never");
  EXPECT_THAT(warnings, testing::IsEmpty());
  emu::gpus() = {{.lost_node = 3}};
  EXPECT_EQ(weights_with("auto"), want);
  EXPECT_THAT(warnings, testing::ElementsAre(testing::HasSubstr("its first replay computed other bits in")));
  EXPECT_NE(weights_with("always"), want);
  EXPECT_EQ(warnings.size(), 1U);
}

}  // namespace
}  // namespace hearth::engine
