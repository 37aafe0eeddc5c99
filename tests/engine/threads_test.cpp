#include "engine/group_run.h"

namespace hearth::engine {
namespace {

/// Steps with convolutions of every kind of kernel, batch norms, accumulation and a norm to clip by.
constexpr const char* kResNet = R"(
model: {name: resnet18, num_classes: 10}
data: {kind: shapes, image_size: 16, count: 12, val_count: 4, threads: 1}
train: {steps: 2, batch: 3, accumulate: 2, clip_norm: 1, checkpoint_every: 1, log_every: 1}
optimizer: {name: sgd, lr: 0.05, momentum: 0.9}
threads: 1
)";
/// Convolution and pooling in one kernel.
constexpr const char* kSimpleCnn = R"(
model: {name: simplecnn, num_classes: 10}
data: {kind: shapes, image_size: 32, count: 64, val_count: 8, threads: 1}
train: {steps: 2, batch: 32, clip_norm: 1, log_every: 1}
optimizer: {name: adamw, lr: 0.01}
threads: 1
)";

std::string on_threads(const std::string& yaml, int threads) {
  return replaced(yaml, "threads: 1\n", fmt::format("threads: {}\n", threads));
}

void expect_bits_of_one_thread(const std::string& yaml) {
  const run::Outcome one = train_with(yaml, 1);
  for (const int threads : {2, 5})
    expect_same(train_with(on_threads(yaml, threads), 1), one, fmt::format("{} threads", threads).c_str());
}

TEST(Threads, DoNotChangeTheBitsOfImageModels) {
  expect_bits_of_one_thread(kResNet);
  for (const char* precision : {"fp32", "bf16"})
    expect_bits_of_one_thread(fmt::format("{}precision: {}\n", kSimpleCnn, precision));
}

TEST(Threads, DoNotChangeTheBitsOfLanguageModels) {
  const TemporaryFolder folder(run::quick_folder());
  const std::string words = words_recipe(folder.path(), "steps: 2, batch: 16, clip_norm: 1, log_every: 1");
  expect_bits_of_one_thread(words + "precision: bf16\n");
  expect_bits_of_one_thread(words + "precision: bf16\nmatmul_precision: fp8\n");
  for (const char* name : {"adamw", "adafactor", "muon", "adamw8bit"})
    expect_bits_of_one_thread(replaced(words, "name: adamw", fmt::format("name: {}", name)));
}

TEST(Threads, ARunResumesOnAnotherNumberOfThem) {
  const run::Outcome whole = train_with(kResNet, 1);
  const TemporaryFolder folder(run::quick_folder());
  train_with(on_threads(kResNet, 5), 1, folder.path(), 1, false);
  expect_same(train_with(on_threads(kResNet, 2), 1, folder.path(), 0, true), whole, "5 threads, then 2");
}

}  // namespace
}  // namespace hearth::engine
