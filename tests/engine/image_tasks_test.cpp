// Segmentation and detection hold what classification holds: the same bits on any number of workers and
// loader threads and after a stop, a budget that changes nothing but memory, and an emulated GPU that takes
// the processor's course without its help.
#include <gtest/gtest.h>

#include "engine/group_run.h"
#include "run/from_recipe.h"
#include "run/trainer.h"
#include "temporary_folder.h"

namespace hearth::engine {
namespace {

/// Two epochs of 65 rows: the last of three updates has six of eight micro-batches, one of them short.
constexpr const char* kMasks = R"(
model: {name: unet, num_classes: 11, width: 4}
data: {kind: shapes, image_size: [20, 16], count: 65, val_count: 5, flip: true, jitter: 0.1, scale: [0.5, 1.5], threads: 1}
segment: {loss: [cross_entropy, dice, focal], class_weights: median_frequency}
train: {epochs: 2, batch: 3, accumulate: 8, shards: 4, checkpoint_every: 2, ema: 0.9, clip_norm: 1, log_every: 1}
optimizer: {name: adamw, lr: 0.01}
threads: 1
)";
constexpr const char* kBoxes = R"(
model: {name: yolox_pico, num_classes: 10}
data: {kind: shapes, image_size: 32, count: 65, val_count: 5, flip: true, threads: 1}
detect: {mixup: 0.5, plain_epochs: 1, max_boxes: 6, sizes: [32, 64]}
train: {epochs: 2, batch: 3, accumulate: 8, shards: 4, checkpoint_every: 2, ema: 0.9, clip_norm: 1, log_every: 1}
optimizer: {name: adamw, lr: 0.001}
threads: 1
)";

class ImageTasks : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Tasks, ImageTasks, testing::Values(kMasks, kBoxes), [](const auto& info) {
  return std::string(info.param == kMasks ? "Masks" : "Boxes");
});

TEST_P(ImageTasks, OneTwoAndFourWorkersMakeTheSameBits) { expect_bits_of_one(GetParam(), GetParam()); }

TEST_P(ImageTasks, ARunGoesOnWithAnotherNumberOfWorkers) { expect_bits_in_turns(GetParam(), GetParam(), 1); }

TEST_P(ImageTasks, LoaderThreadsChangeNothing) {
  const run::Outcome want = train_with(GetParam(), 1);
  for (const char* threads : {"threads: 0}\n", "threads: 3}\n"}) {
    const std::string yaml = replaced(GetParam(), "threads: 1}\n", threads);
    expect_same(train_with(yaml, 1), want, threads);
  }
}

std::vector<double> losses_of(const std::string& yaml, const std::vector<std::string>& overrides,
                              int64_t* arena_bytes = nullptr, int64_t* host_nodes = nullptr) {
  const TemporaryFolder folder;
  std::vector<double> losses;
  run::Trainer trainer(tasks::Job(run::parse_recipe(yaml, "test", overrides)), folder.path(),
                       {.progress = [&](const run::Progress& progress) { losses.push_back(progress.loss); },
                        .message = [](const std::string&) {}});
  if (arena_bytes != nullptr) *arena_bytes = trainer.engine().plan().arena_bytes;
  if (host_nodes != nullptr) *host_nodes = trainer.engine().plan().train_program().num_host_nodes;
  trainer.run(false);
  return losses;
}

TEST_P(ImageTasks, ABudgetChangesMemoryAlone) {
  const std::vector<std::string> few = {"train.steps=2", "data.image_size=64"};
  int64_t free_bytes = 0, tight_bytes = 0;
  const std::vector<double> want = losses_of(GetParam(), few, &free_bytes);
  std::vector<std::string> tight = few;
  tight.push_back(fmt::format("memory={}", free_bytes * 9 / 10));
  EXPECT_EQ(losses_of(GetParam(), tight, &tight_bytes), want);
  EXPECT_LE(tight_bytes, free_bytes * 9 / 10);
}

/// The losses of three steps here and there, where nothing is lent to the processor.
void expect_course_of_gpu(const std::string& yaml, std::vector<std::string> overrides) {
  overrides.insert(overrides.end(), {"train.steps=3", "train.accumulate=1", "train.shards=1",
                                     "data.val_count=2", "optimizer.name=sgd"});
  const std::vector<double> want = losses_of(yaml, overrides);
  for (const char* precision : {"fp32", "bf16"}) {
    std::vector<std::string> there = overrides;
    there.insert(there.end(), {"device=emulated", std::string("precision=") + precision, "self_test=never"});
    int64_t host_nodes = -1;
    const std::vector<double> got = losses_of(yaml, there, nullptr, &host_nodes);
    EXPECT_EQ(host_nodes, 0);
    ASSERT_EQ(got.size(), want.size());
    const double tolerance = precision == std::string("fp32") ? 1e-4 : 0.1;
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance * want[i]) << i;
  }
}

TEST_P(ImageTasks, AnEmulatedGpuTakesTheProcessorsCourse) {
  // Adam's first steps go by signs, which rounding turns; so do batch norms of two values.
  expect_course_of_gpu(GetParam(), {"train.batch=4", "data.count=12", "optimizer.lr=0.00001"});
}

TEST(MobileModels, AnEmulatedGpuTakesTheProcessorsCourse) {
  constexpr const char* kYaml = R"(
model: {num_classes: 10, width: 4}
data: {kind: shapes, image_size: 32, count: 12, threads: 1}
train: {batch: 4, log_every: 1}
threads: 1
)";
  for (const char* model : {"mobilenet_v3_small", "efficientnet_b0"}) {
    SCOPED_TRACE(model);
    expect_course_of_gpu(kYaml, {std::string("model.name=") + model, "optimizer.lr=0.01"});
  }
}

}  // namespace
}  // namespace hearth::engine
