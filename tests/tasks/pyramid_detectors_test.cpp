// RetinaNet and FCOS: what their anchors learn, against all pairs of anchors and boxes; small ones find the
// shapes that they were trained on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "data/images/augment.h"
#include "data/shapes.h"
#include "engine/engine.h"
#include "tasks/detect/anchors.h"
#include "tasks/detect/dense_read.h"
#include "tasks/detect/detector.h"
#include "tasks/detect/fcos_targets.h"
#include "tasks/detect/nms.h"
#include "tasks/detect/overlap.h"

namespace hearth::tasks {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;

/// Boxes of all sizes, some twice and some at the edges, whose corners are whole and half pixels.
std::vector<data::Box> random_boxes(std::mt19937& random, Extent size) {
  std::vector<data::Box> boxes;
  const auto below = [&](int64_t count) {
    return static_cast<double>(random() % static_cast<uint64_t>(count));
  };
  for (int i = 0; i < 12; ++i) {
    const double width = 1 + std::min(std::exp2(below(100) / 11), static_cast<double>(size.width) - 2);
    const double height = 1 + std::min(std::exp2(below(100) / 11), static_cast<double>(size.height) - 2);
    data::Box box{.label = i % 3};
    box.x0 = below(2 * size.width - static_cast<int64_t>(2 * width) + 1) / 2;
    box.y0 = below(2 * size.height - static_cast<int64_t>(2 * height) + 1) / 2;
    box.x1 = box.x0 + std::floor(width);
    box.y1 = box.y0 + std::floor(height);
    boxes.push_back(box);
  }
  boxes.push_back(boxes[3]);
  boxes.push_back({.x1 = static_cast<double>(size.width), .y1 = static_cast<double>(size.height)});
  return boxes;
}

struct LevelSize {
  int64_t rows, columns, side;
};
/// By halving as often as a stride-2 convolution does.
std::vector<LevelSize> all_levels(Extent size) {
  const auto halved = [](int64_t side, int times) {
    for (; times > 0; --times) side = side / 2 + side % 2;
    return side;
  };
  std::vector<LevelSize> made;
  for (int level = 3; level <= 7; ++level)
    made.push_back({halved(size.height, level), halved(size.width, level), int64_t{1} << level});
  return made;
}

double iou_of(const AnchorBox& a, const data::Box& b) {
  const double width = std::min(a.x1, b.x1) - std::max(a.x0, b.x0);
  const double height = std::min(a.y1, b.y1) - std::max(a.y0, b.y0);
  if (width <= 0 || height <= 0) return 0;
  return width * height / ((a.x1 - a.x0) * (a.y1 - a.y0) + (b.x1 - b.x0) * (b.y1 - b.y0) - width * height);
}

std::vector<AnchorBox> all_anchors(Extent size) {
  // Of the finest level, as the paper's three sizes and shapes make them.
  const std::vector<std::array<double, 2>> halves = {{23, 11}, {28, 14}, {35, 18}, {16, 16}, {20, 20},
                                                     {25, 25}, {11, 23}, {14, 28}, {18, 35}};
  std::vector<AnchorBox> made;
  for (const LevelSize& level : all_levels(size)) {
    for (int64_t row = 0; row < level.rows; ++row) {
      for (int64_t column = 0; column < level.columns; ++column) {
        for (size_t kind = 0; kind < halves.size(); ++kind) {
          const auto x = static_cast<double>(column * (size.width / level.columns));
          const auto y = static_cast<double>(row * (size.height / level.rows));
          const double side =
              std::floor(4 * static_cast<double>(level.side) * std::cbrt(std::exp2(kind % 3)));
          const double slim = std::nearbyint(side / std::sqrt(2.0) / 2),
                       wide = std::nearbyint(side * std::sqrt(2.0) / 2);
          const std::array<double, 2> half =
              kind < 3   ? std::array{wide, slim}
              : kind < 6 ? std::array{std::nearbyint(side / 2), std::nearbyint(side / 2)}
                         : std::array{slim, wide};
          if (level.side == 8) {
            EXPECT_EQ(half, halves[kind]);
          }
          made.push_back({x - half[0], y - half[1], x + half[0], y + half[1]});
        }
      }
    }
  }
  return made;
}

TEST(AnchorsOfPyramids, MatchAsAllPairsOfAnchorsAndBoxes) {
  std::mt19937 random(7);
  for (const Extent size : {Extent(64), Extent(224, 96), Extent(320, 416)}) {
    const std::vector<AnchorBox> anchors = all_anchors(size);
    const Anchors found(size);
    ASSERT_EQ(found.count(), std::ssize(anchors));
    for (size_t i = 0; i < anchors.size(); ++i) {
      const AnchorBox at = found.at(static_cast<int64_t>(i));
      ASSERT_EQ(std::tie(at.x0, at.y0, at.x1, at.y1),
                std::tie(anchors[i].x0, anchors[i].y0, anchors[i].x1, anchors[i].y1))
          << i;
    }
    const std::vector<data::Box> boxes = random_boxes(random, size);
    std::vector<int32_t> expected;
    std::vector<double> best_of_box(boxes.size());
    for (const AnchorBox& anchor : anchors)
      for (size_t i = 0; i < boxes.size(); ++i)
        best_of_box[i] = std::max(best_of_box[i], iou_of(anchor, boxes[i]));
    for (const AnchorBox& anchor : anchors) {
      std::vector<double> overlaps;
      bool is_best = false;
      for (size_t i = 0; i < boxes.size(); ++i) {
        overlaps.push_back(iou_of(anchor, boxes[i]));
        is_best |= overlaps.back() == best_of_box[i];
      }
      const auto most = std::ranges::max_element(overlaps);
      expected.push_back(is_best || *most >= 0.5 ? static_cast<int32_t>(most - overlaps.begin())
                         : *most < 0.4           ? Anchors::kBackground
                                                 : Anchors::kUndecided);
    }
    EXPECT_EQ(found.match(boxes), expected);
    EXPECT_THAT(expected, testing::Contains(Anchors::kUndecided));
  }
}

TEST(AnchorsOfPyramids, LearnNothingOfNoBoxes) {
  EXPECT_THAT(Anchors(64).match({}), testing::Each(Anchors::kBackground));
}

TEST(FcosTargets, AsAllPairsOfCellsAndBoxes) {
  std::mt19937 random(11);
  for (const Extent size : {Extent(64), Extent(224, 96), Extent(640, 1024)}) {
    const std::vector<data::Box> boxes = random_boxes(random, size);
    const std::vector<FcosTarget> found = fcos_targets(boxes, size);
    const std::vector<LevelSize> levels = all_levels(size);
    size_t at = 0;
    int num_learning = 0;
    for (const LevelSize& level : levels) {
      const auto side = static_cast<double>(level.side);
      for (int64_t cell = 0; cell < level.rows * level.columns; ++cell, ++at) {
        const auto x = static_cast<double>(cell % level.columns * (size.width / level.columns));
        const auto y = static_cast<double>(cell / level.columns * (size.height / level.rows));
        int32_t expected = -1;
        double smallest = 1e9;
        for (size_t i = 0; i < boxes.size(); ++i) {
          const data::Box& box = boxes[i];
          const double farthest = std::max({x - box.x0, box.x1 - x, y - box.y0, box.y1 - y});
          const bool inside = x > box.x0 && x < box.x1 && y > box.y0 && y < box.y1;
          const bool central =
              std::abs(2 * x - box.x0 - box.x1) < 3 * side && std::abs(2 * y - box.y0 - box.y1) < 3 * side;
          const bool fits =
              (farthest > 4 * side || level.side == 8) && (farthest < 8 * side || level.side == 128);
          const double area = (box.x1 - box.x0) * (box.y1 - box.y0);
          if (!inside || !central || !fits || area >= smallest) continue;
          smallest = area;
          expected = static_cast<int32_t>(i);
        }
        ASSERT_EQ(found[at].box, expected) << at;
        if (expected < 0) continue;
        ++num_learning;
        const data::Box& box = boxes[static_cast<size_t>(expected)];
        EXPECT_THAT(found[at].edges, ElementsAre((x - box.x0) / side, (y - box.y0) / side,
                                                 (box.x1 - x) / side, (box.y1 - y) / side));
        const auto share = [](double a, double b) { return a < b ? a / b : b / a; };
        EXPECT_NEAR(found[at].centerness,
                    std::sqrt(share(x - box.x0, box.x1 - x) * share(y - box.y0, box.y1 - y)), 1e-12);
      }
    }
    EXPECT_EQ(at, found.size());
    EXPECT_GT(num_learning, 3);
  }
}

TEST(DenseRead, TheBestThousandOfEachLevelThatReachTheScore) {
  const PyramidLevels levels = pyramid_levels(256);  // 1024 cells, 256, 64, 16, 4
  ASSERT_EQ(num_cells(levels), 1364);
  std::vector<float> logits(2 * 1364, -10), centerness(1364, 100);
  for (size_t i = 0; i < 1024; ++i) logits[2 * i] = static_cast<float>(i) / 1024;
  logits[2 * 1024 + 1] = 0;
  logits[2 * 1025 + 1] = std::nanf("");
  DensePredictions predictions{.levels = levels, .num_classes = 2, .logits = logits.data()};
  std::vector<Candidate> found = best_of_levels(predictions, 0.5);
  ASSERT_EQ(found.size(), 1001U);
  EXPECT_THAT(found.front(), AllOf(Field(&Candidate::anchor, 1023), Field(&Candidate::label, 0)));
  EXPECT_EQ(found[999].anchor, 24);
  EXPECT_THAT(found[1000], AllOf(Field(&Candidate::anchor, 1024), Field(&Candidate::label, 1),
                                 Field(&Candidate::score, 0.5)));
  EXPECT_EQ(best_of_levels(predictions, 0).size(), 1000U + 511 + 128 + 32 + 8);
  predictions.centerness = centerness.data();
  found = best_of_levels(predictions, 0.5);
  ASSERT_EQ(found.size(), 1001U);
  EXPECT_DOUBLE_EQ(found[1000].score, std::sqrt(0.5));
  centerness[1024] = -2;
  EXPECT_EQ(best_of_levels(predictions, 0.5).size(), 1000U);
}

class PyramidDetectors : public testing::TestWithParam<const char*> {};

constexpr int64_t kTaught = 8, kTaughtSide = 64;

TEST_P(PyramidDetectors, FindTheShapesThatTheyWereTrainedOn) {
  const auto detector = find_detector(GetParam())
                            ->open({.model = GetParam(),
                                    .num_classes = data::kNumShapes,
                                    .image_size = kTaughtSide,
                                    .max_boxes = 1,
                                    .width = 8});
  const data::BoxedImages set = data::shape_boxes(5, kTaught, kTaughtSide);
  std::vector<std::vector<std::byte>> arrays(data::kMaxArrays);
  constexpr int64_t kFloats = kTaughtSide * kTaughtSide * 3;
  const data::ArrayFormats formats = detector->target_formats(kTaughtSide);
  arrays[0].resize(kTaught * kFloats * sizeof(float) + engine::kInputSlack);
  for (size_t i = 1; i < arrays.size(); ++i)
    arrays[i].resize(static_cast<size_t>(kTaught * formats[i - 1].row_bytes + engine::kInputSlack));
  for (int64_t row = 0; row < kTaught; ++row) {
    const data::Image image = set.draw(row);
    auto* pixels = reinterpret_cast<float*>(arrays[0].data()) + row * kFloats;
    data::Augmenter{detector->pixels(), kTaughtSide, 3}.apply(0, row, image.pixels.data(), pixels);
    std::vector<std::byte*> targets;
    for (size_t i = 1; i < arrays.size() && formats[i - 1].name != nullptr; ++i)
      targets.push_back(arrays[i].data() + row * formats[i - 1].row_bytes);
    detector->write_targets(set.images[static_cast<size_t>(row)].boxes, kTaughtSide, false, targets);
  }
  engine::MicroBatch batch{{{"images", arrays[0].data()}}, kTaught};
  for (size_t i = 1; i < arrays.size() && formats[i - 1].name != nullptr; ++i)
    batch.add({formats[i - 1].name, arrays[i].data()});
  engine::Engine engine({.objective = detector->objective(),
                         .optimizer = {.name = "adamw"},
                         .batch = kTaught,
                         .seed = 3,
                         .num_threads = 2},
                        std::vector{kTaught}, std::vector{kTaught});
  engine.initialize();
  constexpr int kSteps = 160;
  double first = 0, last = 0;
  for (int step = 0; step < kSteps; ++step) {
    last = engine
               .train_step(
                   1, kTaught, [&] { return batch; }, step, step < kSteps * 3 / 4 ? 2e-3 : 4e-4)
               .loss;
    if (step == 0) first = last;
  }
  EXPECT_LT(last, first / 3);
  engine.evaluate(batch);
  for (int64_t row = 0; row < kTaught; ++row) {
    const std::vector<Detection> found =
        suppress(detector->read(engine, row, kTaughtSide, 0.05), {.score = 0.05});
    ASSERT_FALSE(found.empty()) << row;
    const data::Box& box = set.images[static_cast<size_t>(row)].boxes[0];
    EXPECT_EQ(found[0].label, box.label) << row;
    EXPECT_GT(overlap(found[0], truth_of(box)), 0.8) << row;
    EXPECT_GT(found[0].score, 0.3) << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Slow, PyramidDetectors,
                         testing::Values("retinanet_resnet50_fpn", "fcos_resnet50_fpn"),
                         [](const auto& test) {
                           return std::string(test.param).substr(0, std::string_view(test.param).find('_'));
                         });

}  // namespace
}  // namespace hearth::tasks
