// Assignments of boxes that can be followed by hand: 4 x 4 cells of 8 pixels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/threads.h"
#include "ops/detect/detect.h"

namespace hearth::ops {
namespace {

using testing::ElementsAre;

constexpr int64_t kAnchors = 16, kClasses = 2, kWidth = 5 + kClasses;

using Row = std::vector<float>;

struct Assignment {
  std::vector<int32_t> labels = std::vector<int32_t>(kAnchors);
  std::vector<float> assigned = Row(kAnchors), boxes = Row(kAnchors * 4), ious = Row(kAnchors);

  /// {anchor, class} of those that learn.
  std::vector<std::pair<int, int>> found() const {
    std::vector<std::pair<int, int>> all;
    for (int a = 0; a < kAnchors; ++a) {
      if (labels[static_cast<size_t>(a)] >= 0) all.emplace_back(a, labels[static_cast<size_t>(a)]);
    }
    return all;
  }
  Row box(size_t anchor) const {
    return {boxes.begin() + static_cast<std::ptrdiff_t>(anchor * 4),
            boxes.begin() + static_cast<std::ptrdiff_t>(anchor * 4 + 4)};
  }
};

/// Every anchor predicts the same.
Assignment assign(const Row& predicted, const std::vector<Row>& targets) {
  Row raw, wanted;
  for (int64_t a = 0; a < kAnchors; ++a) raw.insert(raw.end(), predicted.begin(), predicted.end());
  for (const Row& target : targets) wanted.insert(wanted.end(), target.begin(), target.end());
  const ir::Attrs attrs = {
      {"strides", std::vector<int64_t>{8}}, {"height", int64_t{32}}, {"width", int64_t{32}}};
  const std::vector<ir::Type> in = {{.dtype = DType::f32, .shape = {1, kAnchors, kWidth}},
                                    {.dtype = DType::f32, .shape = {1, std::ssize(targets), 5}}};
  const ir::Inferred inferred = simota.infer({.attrs = attrs, .in = in, .out = {}});
  EXPECT_EQ(inferred.error, "");
  const ir::Kernel kernel = simota.cpu({.attrs = attrs, .in = in, .out = inferred.out});
  std::vector<double> workspace(static_cast<size_t>(kernel.workspace_bytes) / 8 + 1);
  Assignment made;
  ThreadPool threads(1);
  kernel.run({.in = std::vector<void*>{raw.data(), wanted.data()},
              .out = std::vector<void*>{made.labels.data(), made.assigned.data(), made.boxes.data(),
                                        made.ious.data()},
              .workspace = reinterpret_cast<std::byte*>(workspace.data()),
              .threads = &threads});
  return made;
}

const Row kAtCorner = {0, 0, 0, 0, 0, 0, 0}, kAtMiddle = {0.5, 0.5, 0, 0, 0, 0, 0};

TEST(SimOta, TheAnchorInTheBoxAndNearItsCenterLearnsIt) {
  const Assignment made = assign(kAtCorner, {{1, 12, 12, 16, 16}});
  EXPECT_THAT(made.found(), ElementsAre(std::pair(5, 1)));
  EXPECT_THAT(made.box(5), ElementsAre(0.5F, 0.5F, 2.0F, 2.0F));
  EXPECT_EQ(made.ious[5], 0.25F);
  EXPECT_EQ(made.assigned[5], 1);
  EXPECT_EQ(made.assigned[4], 0);
  EXPECT_EQ(made.ious[4], 0);
}

TEST(SimOta, OfEqualAnchorsTheFirstLearns) {
  EXPECT_THAT(assign(kAtMiddle, {{0, 16, 16, 16, 16}}).found(), ElementsAre(std::pair(5, 0)));
}

TEST(SimOta, AsManyLearnAsTheIousAddUpTo) {
  // Four with an IoU of 0.39 and six of 0.10.
  const auto twice = static_cast<float>(std::log(2));
  EXPECT_THAT(assign({0.5, 0.5, twice, twice, 0, 0, 0}, {{0, 16, 16, 16, 16}}).found(),
              ElementsAre(std::pair(5, 0), std::pair(6, 0)));
}

TEST(SimOta, AnAnchorThatSeveralWantLearnsTheCheapest) {
  // Both are of anchor 5, the larger by a larger IoU.
  EXPECT_THAT(assign(kAtCorner, {{1, 12, 12, 8, 8}, {0, 12, 12, 16, 16}}).found(),
              ElementsAre(std::pair(5, 0)));
  EXPECT_THAT(assign(kAtCorner, {{0, 12, 12, 16, 16}, {1, 12, 12, 8, 8}}).found(),
              ElementsAre(std::pair(5, 0)));
}

TEST(SimOta, TheClassThatIsPredictedIsCheaper) {
  EXPECT_THAT(assign({0, 0, 0, 0, 0, 0, 2}, {{0, 12, 12, 16, 16}, {1, 12, 12, 16, 16}}).found(),
              ElementsAre(std::pair(5, 1)));
}

TEST(SimOta, ABoxWithoutAnchorsInsideTakesOneNearItsCenter) {
  EXPECT_THAT(assign(kAtMiddle, {{1, 24, 24, 3, 3}}).found(), ElementsAre(std::pair(10, 1)));
}

TEST(SimOta, WhatIsNoBoxIsLearnedByNobody) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  const Assignment made =
      assign(kAtMiddle, {{-1, 12, 12, 16, 16}, {kClasses, 12, 12, 16, 16}, {none, 12, 12, 16, 16}});
  EXPECT_THAT(made.found(), ElementsAre());
  EXPECT_EQ(made.labels, std::vector<int32_t>(kAnchors, -1));
  EXPECT_EQ(made.boxes, Row(kAnchors * 4, 0));
}

TEST(SimOta, PredictionsThatAreNoNumbersLearnNothing) {
  const float none = std::numeric_limits<float>::quiet_NaN(), much = std::numeric_limits<float>::infinity();
  EXPECT_THAT(assign({none, none, none, none, none, none, none}, {{0, 12, 12, 16, 16}}).found(),
              ElementsAre());
  EXPECT_EQ(assign({0, 0, much, much, 0, 0, 0}, {{0, 12, 12, 16, 16}}).found().size(), 1);
}

TEST(SimOta, RefusalsSayWhatWasExpected) {
  const auto refused = [](std::vector<ir::Type> in, std::vector<int64_t> strides) {
    const ir::Attrs attrs = {
        {"strides", std::move(strides)}, {"height", int64_t{32}}, {"width", int64_t{32}}};
    return simota.infer({.attrs = attrs, .in = in, .out = {}}).error;
  };
  const ir::Type raw{.dtype = DType::f32, .shape = {2, 16, 7}},
      targets{.dtype = DType::f32, .shape = {2, 3, 5}};
  EXPECT_EQ(refused({raw, targets}, {8}), "");
  EXPECT_EQ(refused({raw, targets}, {8, 16}), "expected 20 anchors for 32 x 32, got f32[2, 16, 7]");
  EXPECT_EQ(refused({raw, targets}, {5}), "the image size 32 x 32 is not divisible by the stride 5");
  EXPECT_EQ(refused({targets, targets}, {8}), "expected predictions f32[N, A, 5 + C], got f32[2, 3, 5]");
  EXPECT_EQ(refused({raw, raw}, {8}), "expected targets f32[2, M, 5], got f32[2, 16, 7]");
}

}  // namespace
}  // namespace hearth::ops
