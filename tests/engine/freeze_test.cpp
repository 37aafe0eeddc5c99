#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>

#include "base/error.h"
#include "run/from_recipe.h"
#include "run/trainer.h"
#include "temporary_folder.h"

namespace hearth::engine {
namespace {

using TensorsByName = std::map<std::string, std::vector<float>>;

constexpr const char* kSmallRecipe = R"(
model: {name: smallcnn, num_classes: 10}
data: {kind: shapes, image_size: 12, count: 16, val_count: 8, shuffle: false}
train: {steps: 3, batch: 8, checkpoint_every: 100}
optimizer: {name: sgd, lr: 0.05, momentum: 0.9}
schedule: {name: constant}
threads: 1
)";

TensorsByName tensors_of(const Engine& engine) {
  TensorsByName made;
  for (const nn::Tensor& tensor : engine.plan().tensors) {
    const std::span<const float> memory = values(engine, tensor.name);
    made[tensor.name] = {memory.begin(), memory.end()};
  }
  return made;
}

struct ShortRun {
  TensorsByName first, last;
};
ShortRun run_with(std::vector<std::string> overrides) {
  const TemporaryFolder folder;
  const run::TrainerEvents quiet{.progress = [](const run::Progress&) {},
                                 .message = [](const std::string&) {}};
  run::Trainer trainer(tasks::Job(run::parse_recipe(kSmallRecipe, "test", overrides)), folder.path(), quiet);
  ShortRun ran{.first = tensors_of(trainer.engine()), .last = {}};
  trainer.run(false);
  ran.last = tensors_of(trainer.engine());
  return ran;
}

bool is_statistic(const std::string& name) { return name.find(".running_") != name.npos; }

class Freeze : public testing::TestWithParam<const char*> {};

TEST_P(Freeze, KeepsModulesAsTheyAre) {
  const ShortRun ran = run_with({"train.freeze=[conv1, bn1, conv2]", GetParam()});
  for (const auto& [name, first] : ran.first) {
    const bool frozen =
        nn::is_under(name, "conv1") || nn::is_under(name, "bn1") || nn::is_under(name, "conv2");
    EXPECT_EQ(ran.last.at(name) == first, frozen) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Freeze,
                         testing::Values("optimizer.name=sgd", "optimizer.name=adamw", "train.accumulate=2",
                                         "optimizer.in_backward=true", "train.ema=0.9", "precision=bf16"));

TEST(Freeze, UsesRunningStatisticsInTraining) {
  const ShortRun frozen = run_with({"train.freeze=[bn1]"}), free = run_with({});
  EXPECT_EQ(frozen.first, free.first);
  EXPECT_NE(frozen.last.at("fc.weight"), free.last.at("fc.weight"));
}

TEST(Freeze, NamesAreOfModules) {
  EXPECT_TRUE(nn::is_under("layer1.0.conv1.weight", "layer1"));
  EXPECT_TRUE(nn::is_under("layer1.0.conv1.weight", "layer1.0."));
  EXPECT_TRUE(nn::is_under("fc.weight", "fc.weight"));
  EXPECT_FALSE(nn::is_under("layer10.0.weight", "layer1"));
  EXPECT_FALSE(nn::is_under("layer", "layer1"));
}

TEST(Freeze, RefusesWhatIsNotThere) {
  const auto refusal = [](const std::string& override_) {
    try {
      run_with({override_});
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(refusal("train.freeze=[cnv1]"),
              testing::AllOf(testing::HasSubstr("train.freeze"), testing::HasSubstr("did you mean"),
                             testing::HasSubstr("conv1")));
  EXPECT_THAT(refusal("optimizer.rates=[conv9=2]"), testing::HasSubstr("optimizer.rates"));
  EXPECT_THAT(refusal("optimizer.rates=[conv1=x]"), testing::HasSubstr("'conv1=x'"));
  EXPECT_THAT(refusal("optimizer.rates=[conv1=-1]"), testing::HasSubstr("from 0 on"));
  EXPECT_THAT(refusal("optimizer.rates=[=1]"), testing::HasSubstr("[encoder=0.1]"));
  EXPECT_THAT(refusal("train.freeze=[conv1,bn1,conv2,bn2,conv3,bn3,conv4,bn4,fc]"),
              testing::HasSubstr("none is left to train"));
}

TEST(Rates, OfZeroFreezeAllButStatistics) {
  const ShortRun ran = run_with({"optimizer.rates=[conv1=0, bn1=0]"});
  for (const auto& [name, first] : ran.first) {
    const bool still = (nn::is_under(name, "conv1") || nn::is_under(name, "bn1")) && !is_statistic(name);
    EXPECT_EQ(ran.last.at(name) == first, still) << name;
  }
}

TEST(Rates, MultiplyTheStep) {
  const ShortRun whole = run_with({"train.steps=1"});
  const ShortRun quarter = run_with({"train.steps=1", "optimizer.rates=[fc.weight=0.25, fc=0.5]"});
  for (const auto& [name, factor] :
       {std::pair("fc.weight", 0.25F), std::pair("fc.bias", 0.5F), std::pair("conv3.weight", 1.0F)}) {
    const std::vector<float>&first = whole.first.at(name), &moved = whole.last.at(name);
    const std::vector<float>& less = quarter.last.at(name);
    float largest = 0;
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_NEAR(less[i] - first[i], factor * (moved[i] - first[i]), 1e-7) << name;
      largest = std::max(largest, std::abs(moved[i] - first[i]));
    }
    EXPECT_GT(largest, 1e-5) << name;
  }
}

}  // namespace
}  // namespace hearth::engine
