// A small YOLOX finds the shapes that it was trained on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/shapes.h"
#include "engine/engine.h"
#include "models/yolox/yolox.h"
#include "tasks/detect/yolox_objective.h"

namespace hearth::tasks {
namespace {

constexpr int64_t kImages = 8, kSide = 64, kBoxes = 2, kWidth = 5 + data::kNumShapes;

/// Images with a shape each, and room for a second one.
class Shapes {
 public:
  explicit Shapes(int64_t side)
      : images_(static_cast<size_t>(kImages * side * side * 3 + engine::kInputSlack)),
        targets_(static_cast<size_t>(kImages * kBoxes * 5 + engine::kInputSlack), -1) {
    std::vector<uint8_t> pixels(static_cast<size_t>(side * side * 3));
    for (int64_t i = 0; i < kImages; ++i) {
      const data::ShapeScene scene = data::draw_shape(5, i, side, pixels.data(), nullptr);
      std::ranges::copy(pixels, images_.begin() + i * std::ssize(pixels));
      const auto [x0, y0, x1, y1] = scene.box;
      const std::array<int64_t, 5> doubled = {2 * scene.label, x0 + x1, y0 + y1, 2 * (x1 - x0),
                                              2 * (y1 - y0)};
      for (size_t k = 0; k < 5; ++k)
        targets_[static_cast<size_t>(i * kBoxes * 5) + k] = static_cast<float>(doubled[k]) / 2;
    }
  }
  engine::MicroBatch batch(const float* l1_weight, int64_t row_length = 0) const {
    return {{{"images", images_.data()}, {"targets", targets_.data()}, {"l1_weight", l1_weight}},
            kImages,
            row_length};
  }
  std::span<const float> target(int64_t image) const {
    return std::span(targets_).subspan(static_cast<size_t>(image * kBoxes * 5), 5);
  }

 private:
  std::vector<float> images_, targets_;
};

engine::EngineOptions options_of(std::vector<int64_t> row_lengths = {}) {
  return {.objective = yolox_objective({.model = "yolox_pico",
                                        .num_classes = data::kNumShapes,
                                        .height = kSide,
                                        .width = kSide,
                                        .max_boxes = kBoxes}),
          .optimizer = {.name = "adamw"},
          .batch = kImages,
          .row_lengths = std::move(row_lengths),
          .seed = 3,
          .num_threads = 2};
}

double overlap(std::span<const float> a, std::span<const float> b) {
  double common = 1;
  for (size_t i = 0; i < 2; ++i) {
    const double low = std::max(a[i] - a[i + 2] / 2, b[i] - b[i + 2] / 2);
    common *= std::max(0.0, std::min(a[i] + a[i + 2] / 2, b[i] + b[i + 2] / 2) - low);
  }
  return common / (static_cast<double>(a[2] * a[3] + b[2] * b[3]) - common);
}

/// Long enough for the running statistics to follow. Found means what COCO's AP50 means by it.
TEST(SlowYoloxTraining, FindsMostShapesThatItWasTrainedOn) {
  engine::Engine engine(options_of(), std::vector{kImages}, std::vector{kImages});
  engine.initialize();
  const Shapes shapes(kSide);
  const std::vector<float> l1_weight(kImages + engine::kInputSlack, 1);
  constexpr int kSteps = 240;
  double first = 0, last = 0;
  for (int step = 0; step < kSteps; ++step) {
    const auto next = [&] { return shapes.batch(l1_weight.data()); };
    last = engine.train_step(1, kImages, next, step, 3e-3 * (1 - static_cast<double>(step) / kSteps)).loss;
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first / 5);
  EXPECT_LT(engine.evaluate(shapes.batch(l1_weight.data())) / kImages, first / 5);
  const std::span<const float> decoded = engine.output(kDecoded);
  const int64_t anchors = models::num_yolox_anchors(kSide, kSide);
  ASSERT_EQ(std::ssize(decoded), kImages * anchors * kWidth);
  int found = 0;
  for (int64_t image = 0; image < kImages; ++image) {
    std::span<const float> best;
    double most = -1;
    for (int64_t a = 0; a < anchors; ++a) {
      const auto row = decoded.subspan(static_cast<size_t>((image * anchors + a) * kWidth), kWidth);
      const double score = row[4] * *std::max_element(row.begin() + 5, row.end());
      if (score <= most) continue;
      most = score;
      best = row;
    }
    const std::span<const float> target = shapes.target(image);
    const auto label = std::max_element(best.begin() + 5, best.end()) - best.begin() - 5;
    if (overlap(best, target.subspan(1)) > 0.5 && label == std::lround(target[0])) ++found;
  }
  EXPECT_GE(found, 6);
}

TEST(YoloxTraining, ProgramsOfSeveralSizesTrainTheSameWeights) {
  engine::Engine engine(options_of({96, 64}), std::vector{kImages}, std::vector{kImages});
  engine.initialize();
  const std::vector<float> l1_weight(kImages + engine::kInputSlack, 0);
  constexpr int kSteps = 12;
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const int64_t side = step % 2 == 0 ? 96 : 64;
    const Shapes shapes(side);
    const auto next = [&] { return shapes.batch(l1_weight.data(), side); };
    losses.push_back(engine.train_step(1, kImages, next, step, 2e-3).loss);
  }
  EXPECT_LT(losses[kSteps - 2], 0.9 * losses[0]);
  EXPECT_LT(losses[kSteps - 1], 0.9 * losses[1]);
  for (const int64_t side : {96, 64}) {
    engine.evaluate(Shapes(side).batch(l1_weight.data(), side));
    EXPECT_EQ(std::ssize(engine.output(kDecoded)), kImages * models::num_yolox_anchors(side, side) * kWidth);
  }
}

}  // namespace
}  // namespace hearth::tasks
