#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tasks/segment/confusion.h"
#include "tasks/segment/mask_predictor.h"
#include "tasks/segment/segmenter.h"

namespace hearth::tasks {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

TEST(Confusion, CountsOverAWholeSet) {
  Confusion found(3);
  for (int i = 0; i < 6; ++i) found.add(0, 0);
  found.add(0, 1);
  found.add(255, 0);
  found.add(1, 1);
  found.add(1, 1);
  found.add(1, 0);
  EXPECT_THAT(found.counts(), ElementsAre(6, 1, 0, 1, 2, 0, 0, 0, 0));
  // Class 2 is neither there nor predicted.
  EXPECT_THAT(found.iou(), ElementsAre(DoubleEq(6.0 / 8), DoubleEq(2.0 / 4), -1));
  EXPECT_THAT(found.accuracy(), ElementsAre(DoubleEq(6.0 / 7), DoubleEq(2.0 / 3), -1));
  EXPECT_DOUBLE_EQ(found.pixel_accuracy(), 0.8);
  EXPECT_DOUBLE_EQ(Confusion::mean(found.iou()), 0.625);
  EXPECT_EQ(found.num_true(1), 3);
}

/// A segmenter of two classes whose first is the likelier the redder a pixel is.
class RedOrNot {
 public:
  RedOrNot(Extent size, int64_t batch, bool resizes) : size_(size) {
    engine::EngineOptions options{
        .objective = segmenter({.model = {.name = "unet", .num_classes = 2, .image_size = size, .width = 2},
                                .outputs_probabilities = !resizes}),
        .num_threads = 1};
    const int64_t sizes[] = {batch};
    engine_ = std::make_unique<engine::Engine>(options, std::span<const int64_t>(), sizes);
    engine_->initialize();
    predictor_ = std::make_unique<MaskPredictor>(
        *engine_,
        MaskInput{
            .size = size, .resizes = resizes, .pixels = {.mean = {0.5F}, .std = {0.5F}}, .num_classes = 2},
        batch);
  }
  MaskPredictor& predictor() { return *predictor_; }
  engine::Engine& engine() { return *engine_; }

 private:
  Extent size_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<MaskPredictor> predictor_;
};

data::Image noise(int64_t height, int64_t width) {
  data::Image image{.height = height, .width = width, .channels = 3};
  uint32_t state = 7;
  for (int64_t i = 0; i < height * width * 3; ++i)
    image.pixels.push_back(static_cast<uint8_t>((state = state * 1664525U + 1013904223U) >> 24));
  return image;
}

TEST(MaskPredictor, OneWindowIsTheImageItself) {
  RedOrNot whole({16, 24}, 1, true), windows({16, 24}, 1, false);
  const data::Image image = noise(16, 24);
  const data::Image want = whole.predictor().predict(image);
  EXPECT_EQ(want.size(), image.size());
  EXPECT_EQ(windows.predictor().predict(image).pixels, want.pixels);
  // Both classes are there, or nothing was compared.
  EXPECT_NE(*std::ranges::min_element(want.pixels), *std::ranges::max_element(want.pixels));
}

TEST(MaskPredictor, WindowsCoverALargeImage) {
  for (const int64_t batch : {1, 4}) {
    RedOrNot model(16, batch, false);
    const data::Image image = noise(45, 37);
    MaskPredictor::Loss loss;
    data::Image truth{.height = 45, .width = 37, .channels = 1};
    truth.pixels.assign(45 * 37, 1);
    const data::Image made = model.predictor().predict(image, &truth, &loss);
    EXPECT_EQ(made.size(), image.size());
    // 0, 8, 16, 24, 29 from the top; 0, 8, 16, 21 from the left; whole batches.
    EXPECT_EQ(loss.count, 20);
    EXPECT_GT(loss.sum, 0);
    // The lower right corner is that of the last window alone.
    data::Image corner{.height = 16, .width = 16, .channels = 3};
    for (int64_t y = 29; y < 45; ++y) {
      const auto row = image.pixels.begin() + (y * 37 + 21) * 3;
      corner.pixels.insert(corner.pixels.end(), row, row + 48);
    }
    const data::Image alone = model.predictor().predict(corner);
    EXPECT_EQ(made.pixels.back(), alone.pixels.back());
  }
}

TEST(MaskPredictor, ASmallImageIsPadded) {
  RedOrNot model(16, 1, false);
  EXPECT_EQ(model.predictor().predict(noise(5, 9)).size(), (Extent{5, 9}));
}

}  // namespace
}  // namespace hearth::tasks
