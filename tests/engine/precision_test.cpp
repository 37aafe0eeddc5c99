#include <gtest/gtest.h>

#include <cmath>

#include "base/philox.h"
#include "engine/engine.h"
#include "tasks/classify/classifier.h"

namespace hearth::engine {
namespace {

constexpr int64_t kSide = 16;
constexpr int64_t kBatch = 8;

/// One batch of noise whose label is where it is brightest, trained on again and again.
class Trained {
 public:
  Trained(const char* model, DType precision, int64_t accumulate = 1, bool winograd = true)
      : engine_(
            {.objective = tasks::classifier(
                 {.model =
                      {.name = model, .num_classes = 4, .image_size = kSide, .hidden = {12}, .dropout = 0}}),
             .batch = kBatch,
             .accumulate = accumulate,
             .precision = precision,
             .seed = 5,
             .num_threads = 2,
             .winograd = winograd},
            std::vector{kBatch}, {}),
        images_(kBatch * kSide * kSide * 3 + 16),
        labels_(kBatch + 16) {
    PhiloxSequence random(3, 0);
    for (float& value : images_) value = random.uniform(-1, 1);
    for (int64_t i = 0; i < kBatch; ++i) {
      labels_[static_cast<size_t>(i)] = static_cast<int32_t>(i % 4);
      images_[static_cast<size_t>(i * kSide * kSide * 3 + i % 4)] += 2;
    }
    engine_.initialize();
  }

  StepResult step() {
    const int64_t num_micro = engine_.plan().options.accumulate;
    const auto next = [&] {
      return MicroBatch{{{"images", images_.data()}, {"labels", labels_.data()}}, kBatch};
    };
    return engine_.train_step(num_micro, num_micro * kBatch, next, num_steps_++, 0.02);
  }
  std::vector<float> trained() const {
    std::vector<float> all;
    for (const nn::Tensor& tensor : engine_.plan().tensors) {
      if (!tensor.trainable) continue;
      const std::span<float> values = engine::values(engine_, tensor.name);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  std::span<float> loss_scale() const { return values(engine_, kLossScale); }

 private:
  Engine engine_;
  std::vector<float> images_;
  std::vector<int32_t> labels_;
  int64_t num_steps_ = 0;
};

TEST(Winograd, IsChosenByEachEngineOfAProcess) {
  const auto losses = [](std::initializer_list<bool> choices) {
    std::vector<std::unique_ptr<Trained>> engines;
    for (const bool winograd : choices)
      engines.push_back(std::make_unique<Trained>("smallcnn", DType::f32, 1, winograd));
    std::vector<double> found;
    for (int step = 0; step < 2; ++step)
      for (const auto& engine : engines) found.push_back(engine->step().loss);
    return found;
  };
  const std::vector<double> with = losses({true}), without = losses({false});
  EXPECT_NE(with, without);
  EXPECT_NEAR(with[0], without[0], 1e-4);
  EXPECT_EQ(losses({false, true}), std::vector<double>({without[0], with[0], without[1], with[1]}));
}

TEST(LossScale, IsHalvedUntilTheGradientsFitAndGrowsBack) {
  for (const int64_t accumulate : {1, 2}) {
    Trained run("smallcnn", DType::f16, accumulate);
    const std::vector<float> first = run.trained();
    float scale = std::ldexp(1.0F, 40);
    run.loss_scale()[0] = scale;
    int num_skips = 0;
    while (run.step().skipped && num_skips < 60) {
      ++num_skips;
      EXPECT_EQ(run.loss_scale()[0], scale /= 2);
      EXPECT_EQ(run.loss_scale()[1], 0);
      EXPECT_EQ(run.loss_scale()[2], static_cast<float>(num_skips));
      EXPECT_EQ(run.trained(), first) << "a skipped step changes nothing";
    }
    EXPECT_GT(num_skips, 15);
    EXPECT_LT(num_skips, 60);
    EXPECT_NE(run.trained(), first);
    EXPECT_EQ(run.loss_scale()[0], scale);
    EXPECT_EQ(run.loss_scale()[1], 1);
    run.loss_scale()[0] = 1024;
    run.loss_scale()[1] = 1998;
    EXPECT_FALSE(run.step().skipped);
    EXPECT_EQ(run.loss_scale()[0], 1024) << "one good step short of growing";
    EXPECT_FALSE(run.step().skipped);
    EXPECT_EQ(run.loss_scale()[0], 2048);
    EXPECT_EQ(run.loss_scale()[1], 0);
  }
}

TEST(LossScale, ChangesNoUpdate) {
  Trained small("smallcnn", DType::f16);
  Trained large("smallcnn", DType::f16);
  small.loss_scale()[0] = 1 << 13;
  large.loss_scale()[0] = 1 << 15;
  for (int i = 0; i < 5; ++i) {
    const StepResult a = small.step();
    const StepResult b = large.step();
    ASSERT_FALSE(a.skipped || b.skipped);
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-3 * a.grad_norm);
    EXPECT_NEAR(a.loss, b.loss, 1e-3 * a.loss);
  }
}

TEST(Precision, LowOnesTrainToNearlyTheSameLoss) {
  for (const char* model : {"mlp", "smallcnn"}) {
    Trained full(model, DType::f32);
    Trained bf16(model, DType::bf16);
    Trained f16(model, DType::f16);
    const double first = full.step().loss;
    bf16.step();
    f16.step();
    double wanted = 0;
    double low = 0;
    double half = 0;
    for (int i = 0; i < 30; ++i) {
      wanted = full.step().loss;
      low = bf16.step().loss;
      half = f16.step().loss;
    }
    EXPECT_LT(wanted, 0.5 * first) << model;
    EXPECT_NE(low, wanted) << model;
    EXPECT_NEAR(low, wanted, 0.05 * first) << model;
    EXPECT_NEAR(half, wanted, 0.01 * first) << model;
  }
}

}  // namespace
}  // namespace hearth::engine
