#include "engine/pruning.h"

#include <gmock/gmock.h>

#include "engine/group_run.h"
#include "io/run_log.h"
#include "io/weight_files.h"
#include "run/from_recipe.h"
#include "run/trainer.h"

namespace hearth::engine {
namespace {

constexpr const char* kImages = R"(
model: {name: smallcnn, num_classes: 10}
data: {kind: shapes, image_size: 12, count: 96, val_count: 16}
train: {steps: 6, batch: 8, accumulate: 4, shards: 4, log_every: 1, checkpoint_every: 2}
optimizer: {name: adamw, lr: 0.01, weight_decay: 0.1}
schedule: {name: constant}
threads: 1
)";
constexpr const char* kMagnitude =
    "prune: {method: magnitude, sparsity: 0.6, from_step: 1, to_step: 4, every: 1}\n";

const run::TrainerEvents kQuiet{.progress = [](const run::Progress&) {},
                                .message = [](const std::string&) {}};

recipe::Recipe with(const std::string& yaml, const std::vector<std::string>& overrides) {
  return run::parse_recipe(yaml, "test", overrides);
}

/// Trains, and expects that masked elements of each weight and of its states of this shape are zero.
void expect_zeros(const recipe::Recipe& recipe, double sparsity) {
  const TemporaryFolder folder;
  run::Trainer trainer(tasks::Job(recipe), folder.path(), kQuiet);
  trainer.run(false);
  const Engine& engine = trainer.engine();
  const exec::PersistentLayout& layout = *engine.plan().layout;
  ASSERT_FALSE(engine.plan().pruned.empty());
  int64_t num_pruned = 0, num_weights = 0;
  for (const LayerSparsity& layer : layer_sparsity(engine)) {
    num_pruned += layer.num_pruned;
    num_weights += layer.num_weights;
    const auto* mask = reinterpret_cast<const uint8_t*>(engine.data(layout.at("mask/" + layer.name)));
    for (const char* prefix : {"", "momentum/", "adam_m/", "adam_v/", "ema/"}) {
      const exec::PersistentBuffer* buffer = layout.find(prefix + layer.name);
      if (buffer == nullptr || buffer->type.dtype != DType::f32) continue;
      const auto found = values(engine, prefix + layer.name);
      for (int64_t i = 0; i < layer.num_weights; ++i) {
        const float value = found[static_cast<size_t>(i)];
        ASSERT_EQ(is_pruned(mask, i) ? value : 0, 0) << prefix << layer.name;
      }
    }
  }
  EXPECT_NEAR(static_cast<double>(num_pruned) / static_cast<double>(num_weights), sparsity, 1e-3);
}

TEST(Pruning, KeepsPrunedWeightsAtZero) {
  for (const char* optimizer : {"sgd", "adamw", "adamw8bit", "lion", "adafactor", "muon"}) {
    SCOPED_TRACE(optimizer);
    const std::string name = std::string("optimizer.name=") + optimizer;
    expect_zeros(with(std::string(kImages) + kMagnitude, {name, "train.ema=0.5", "train.clip_norm=1"}), 0.6);
  }
  expect_zeros(with(std::string(kImages) + kMagnitude, {"prune.scope=global"}), 0.6);
  expect_zeros(with(std::string(kImages) + kMagnitude,
                    {"optimizer.in_backward=true", "train.accumulate=1", "train.shards=1"}),
               0.6);
  expect_zeros(with(std::string(kImages) + kMagnitude, {"offload.states=true", "offload.weights=true"}), 0.6);
  expect_zeros(with(std::string(kImages) + kMagnitude, {"precision=bf16", "prune.method=movement"}), 0.6);
  expect_zeros(with(std::string(kImages) + kMagnitude, {"precision=fp16", "prune.method=rigl"}), 0.6);
  expect_zeros(with(std::string(kImages) + kMagnitude, {"prune.sparsity=0.5", "prune.pattern=2:4"}), 0.5);
}

/// Runs the programs of an emulated GPU, whose masks are those of the CPU as long as the weights are.
TEST(Pruning, ChoosesTheSameMasksOnAGpu) {
  for (const char* more : {"prune.scope=layer", "prune.scope=global", "prune.pattern=4:8"}) {
    const std::vector<std::string> keys = {"prune.method=magnitude", "prune.sparsity=0.5", more,
                                           "train.steps=1",          "optimizer.lr=0",     "self_test=never"};
    std::vector<std::vector<uint8_t>> masks;
    for (const char* device : {"cpu", "emulated"}) {
      const TemporaryFolder folder;
      std::vector<std::string> all = keys;
      all.push_back(std::string("device=") + device);
      run::Trainer trainer(tasks::Job(with(kImages, all)), folder.path(), kQuiet);
      trainer.run(false);
      const Engine& engine = trainer.engine();
      auto& found = masks.emplace_back();
      for (const PrunedWeight& weight : engine.plan().pruned) {
        const exec::PersistentBuffer& mask = engine.plan().layout->at("mask/" + weight.name);
        const auto* bytes = reinterpret_cast<const uint8_t*>(engine.data(mask));
        found.insert(found.end(), bytes, bytes + mask.type.num_bytes());
      }
    }
    EXPECT_THAT(masks[0], testing::Contains(testing::Ne(0)));
    EXPECT_EQ(masks[0], masks[1]) << more;
  }
}

TEST(Pruning, GivesTheSameBitsOnAnyNumberOfWorkers) {
  const std::string magnitude = std::string(kImages) + kMagnitude;
  expect_bits_of_one(magnitude, magnitude);
  expect_bits_of_one(magnitude + "parallel: zero1\n", magnitude);
  for (const char* method : {"movement", "rigl"}) {
    const std::string yaml = replaced(magnitude, "method: magnitude", std::string("method: ") + method);
    expect_bits_of_one(yaml, yaml);
  }
}

TEST(Pruning, ResumesWithTheSameBits) {
  for (const char* method : {"magnitude", "movement", "rigl"}) {
    const std::string yaml =
        replaced(std::string(kImages) + kMagnitude, "method: magnitude", std::string("method: ") + method);
    const run::Outcome want = train_with(yaml, 1);
    const TemporaryFolder folder;
    train_with(yaml, 1, folder.path(), 3, false);
    expect_same(train_with(yaml, 1, folder.path(), 0, true), want, method);
    const auto sparsity = io::read_curve(folder.path() / "trainer_log.jsonl", "sparsity");
    EXPECT_EQ(sparsity.size(), method == std::string("rigl") ? 4U : 3U);
    EXPECT_NEAR(sparsity.back().value, 0.6, 1e-3);
  }
}

TEST(Pruning, KeepsZerosInLocalSteps) {
  const TemporaryFolder folder;
  const std::string yaml = std::string(kImages) + "exchange: {local_steps: 2}\n" +
                           "prune: {method: magnitude, from_step: 2, to_step: 2, every: 2}\n";
  train_with(yaml, 2, folder.path(), 0, false);
  const io::WeightFiles files(folder.path() / "model.safetensors");
  int64_t num_zeros = 0, count = 0;
  for (const char* name : {"conv2.weight"}) {
    const io::TensorView& tensor = *files.find(name);
    const auto* first = reinterpret_cast<const float*>(tensor.bytes.data());
    count += tensor.shape.num_elements();
    num_zeros += std::count(first, first + tensor.shape.num_elements(), 0.0F);
  }
  EXPECT_EQ(num_zeros, count / 2);
}

}  // namespace
}  // namespace hearth::engine
