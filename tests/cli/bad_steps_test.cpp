#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/philox.h"
#include "io/run_log.h"
#include "io/safetensors.h"
#include "program.h"

namespace hearth {
namespace {

using testing::HasSubstr;

constexpr int64_t kNumImages = 128, kNumValues = 3 * 64;
/// With four images an update and without shuffling, step 26 of each epoch of 32 meets it.
constexpr int64_t kBroken = 103;
/// A batch norm would take no notice of an image that is too bright.
constexpr const char* kWithoutNorm = "model.name=simplecnn ";

class BadSteps : public Program {
 protected:
  BadSteps() {
    put_images("nan", std::numeric_limits<float>::quiet_NaN());
    put_images("huge", 1e4F);
  }
  /// Images of noise, one of which has this value in its first pixels.
  void put_images(const std::string& name, float value) const {
    std::vector<float> images(static_cast<size_t>(kNumImages * kNumValues));
    std::vector<int32_t> labels(static_cast<size_t>(kNumImages));
    PhiloxSequence random(3, 0);
    for (float& pixel : images) pixel = random.uniform(-1, 1);
    for (int32_t& label : labels) label = static_cast<int32_t>(random.below(10));
    std::fill_n(images.begin() + kBroken * kNumValues, 20, value);
    io::write_safetensors(
        at(name + ".safetensors"),
        {{.name = "images", .shape = {kNumImages, 3, 8, 8}, .bytes = std::as_bytes(std::span(images))},
         {.name = "labels",
          .dtype = DType::i32,
          .shape = {kNumImages},
          .bytes = std::as_bytes(std::span(labels))}});
  }
  static std::string train(const std::string& pictures, const std::string& run) {
    return fmt::format(
        "hearth train tiny.yaml data.kind=tensors data.path={}.safetensors data.flip=false "
        "data.shuffle=false "
        "train.batch=2 train.accumulate=2 train.shards=2 schedule.name=constant optimizer.lr=0.01 "
        "train.checkpoint_every=7 bad_steps.z_score=6 train.steps=64 --out {} ",
        pictures, run);
  }
  /// What it knows of its updates.
  std::string state_of(const std::string& run) const {
    const std::string all = get(run + "/checkpoints/step-000000064/state.json");
    // Runs on other data differ in its fingerprint.
    const size_t begin = all.find("\"total\"");
    return all.substr(begin, all.find("\"inputs\"") - begin);
  }
  void expect_finite_weights(const std::string& run) const {
    const io::SafetensorsFile file(at(run + "/model.safetensors"));
    for (const io::TensorView& tensor : file.tensors()) {
      if (!is_floating(tensor.dtype)) continue;
      for (int64_t i = 0; i < tensor.shape.num_elements(); ++i)
        ASSERT_TRUE(std::isfinite(load_element(tensor.dtype, tensor.bytes.data(), i))) << tensor.name;
    }
  }
  void expect_the_same_run(const std::string& got, const std::string& want) const {
    EXPECT_TRUE(get(got + "/model.safetensors") == get(want + "/model.safetensors")) << got;
    EXPECT_EQ(state_of(got), state_of(want)) << got;
    const auto losses = io::read_curve(at(got + "/trainer_log.jsonl"), "loss");
    const auto wanted = io::read_curve(at(want + "/trainer_log.jsonl"), "loss");
    ASSERT_EQ(losses.size(), 62U) << "each but two steps has one loss";
    for (size_t i = 0; i < losses.size(); ++i) {
      EXPECT_EQ(losses[i].step, wanted[i].step) << i;
      EXPECT_EQ(losses[i].value, wanted[i].value) << i;
    }
  }
};

TEST_F(BadSteps, AreLeftOutWhateverWasInThem) {
  put_images("vast", 1e6F);
  for (const char* pictures : {"huge", "vast"}) {
    EXPECT_THAT(works(train(pictures, pictures) + kWithoutNorm),
                AllOf(HasSubstr("step 26: the loss is "), HasSubstr(" deviations above the mean of 2."),
                      HasSubstr("; rolled back to step 21, its samples will be skipped"),
                      HasSubstr("step 58: "), HasSubstr("done: 64 steps")));
  }
  EXPECT_THAT(state_of("huge"), HasSubstr("\"num_losses\":62,\"num_bad\":2,\"num_bad_in_row\":0"));
  expect_the_same_run("huge", "vast");
  EXPECT_THAT(get("huge/trainer_log.jsonl"), HasSubstr("\"event\":\"step 58: the loss is "));
  works(train("huge", "off") + kWithoutNorm + "bad_steps.z_score=0");
  EXPECT_FALSE(get("off/model.safetensors") == get("huge/model.safetensors"));
}

TEST_F(BadSteps, AreTheSameForAllWorkersAndWhenTheRunGoesOn) {
  EXPECT_THAT(works(train("nan", "whole")), HasSubstr("step 58: the loss is NaN; rolled back to"));
  for (const char* device : {"device=cpu", "device=emulated"}) {
    works("rm -rf own && " + train("nan", "own") + device);
    works("export HEARTH_EMULATED=1GiB,1GiB && rm -rf two && " + train("nan", "two") + device +
          " devices=2 train.steps=28");
    works("hearth train --resume --out two devices=1 train.steps=64");
    expect_the_same_run("two", "own");
    expect_finite_weights("own");
  }
  EXPECT_THAT(
      works(train("nan", "memory") + "train.checkpoint_every=1000 train.memory_checkpoint_every=0.000001"),
      testing::Not(HasSubstr("rolled back to step 0, ")));
  expect_the_same_run("memory", "whole");
  works(train("nan", "begun") + "train.checkpoint_every=40 train.steps=25");
  works("hearth train --resume --out begun train.steps=64 train.checkpoint_every=7");
  expect_the_same_run("begun", "whole");
}

TEST_F(BadSteps, GoBackToTheFirstWeightsWithoutACheckpoint) {
  EXPECT_THAT(works(train("nan", "none") + "train.checkpoint_every=1000"),
              HasSubstr("rolled back to step 0, its"));
  works(train("nan", "some"));
  EXPECT_TRUE(get("none/model.safetensors") == get("some/model.safetensors"));
  works(train("nan", "judged") + "train.checkpoint_every=1000 train.eval_on_start=true");
  EXPECT_TRUE(get("judged/model.safetensors") == get("some/model.safetensors"));
  EXPECT_EQ(count_of(get("judged/trainer_log.jsonl"), "{\"current_steps\":0,\"eval_loss\""), 1U);
}

TEST_F(BadSteps, AreLimited) {
  refused(train("nan", "run") + "bad_steps.max=1",
          {"training stopped at step 58: the loss is NaN, first in the data", "after 1 skipped steps",
           "run/checkpoints/step-000000056", "optimizer.lr"});
  refused(train("huge", "spike") + kWithoutNorm + "bad_steps.max=0",
          {"training stopped at step 26: the loss is ", " deviations above", "bad_steps.z_score"});
}

}  // namespace
}  // namespace hearth
