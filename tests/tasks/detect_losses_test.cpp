// Losses of detectors in float64, by the references of their nodes.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ops/op_list.h"
#include "ops/reference.h"
#include "tasks/detect/losses.h"
#include "tasks/detect/yolox_objective.h"

namespace hearth::tasks {
namespace {

using ir::ValueId;
using Numbers = std::vector<double>;

class Losses {
 public:
  ValueId input(const Shape& shape, Numbers values) {
    const ValueId id = builder.input("", {.dtype = DType::f32, .shape = shape});
    values_[id] = std::move(values);
    return id;
  }
  Numbers of(ValueId made) {
    auto values = values_;
    ops::evaluate_reference(graph_, values);
    return values.at(made);
  }

 private:
  ir::Graph graph_;
  std::map<ValueId, Numbers> values_;

 public:
  nn::Builder builder{graph_, nn::Builder::Mode::train, 1};
};

void expect_near(const Numbers& got, const Numbers& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << i;
}

// The same box, half of one, one far away, and none.
const Numbers kOnes = {2, 2, 4, 4, 1, 2, 2, 4, 2, 2, 4, 4, 0, 0, 0, 0};
const Numbers kOthers = {2, 2, 4, 4, 2, 2, 4, 4, 8, 2, 4, 4, 0, 0, 0, 0};

TEST(DetectLosses, IouIsTheShareThatBothCover) {
  Losses losses;
  const ValueId a = losses.input({4, 4}, kOnes), b = losses.input({4, 4}, kOthers);
  expect_near(losses.of(box_iou(losses.builder, a, b)), {1, 0.5, 0, 0});
}

TEST(DetectLosses, GiouFallsWithTheGapBetweenBoxes) {
  Losses losses;
  const ValueId a = losses.input({3, 4}, {kOnes.begin(), kOnes.begin() + 12});
  const ValueId b = losses.input({3, 4}, {kOthers.begin(), kOthers.begin() + 12});
  expect_near(losses.of(box_giou(losses.builder, a, b)), {1, 0.5, -8.0 / 40});
}

TEST(DetectLosses, CrossEntropyHoldsForAnyLogit) {
  Losses losses;
  const ValueId logits = losses.input({5}, {0, 2, -2, 1000, -1000}),
                targets = losses.input({5}, {0.25, 1, 1, 1, 1});
  expect_near(losses.of(binary_cross_entropy(losses.builder, logits, targets)),
              {std::log(2), std::log1p(std::exp(-2)), std::log1p(std::exp(2)), 0, 1000});
}

TEST(DetectLosses, FocalLossWeighsByTheProbabilityOfBeingWrong) {
  Losses losses;
  const Numbers logits = {0.5, 0.5, -3, 3, 1000, 1000}, targets = {1, 0, 1, 0, 1, 0};
  const double alpha = 0.25, gamma = 2;
  Numbers want;
  for (size_t i = 0; i < 4; ++i) {
    const double p = 1 / (1 + std::exp(-logits[i])), right = targets[i] > 0 ? p : 1 - p;
    want.push_back(-(targets[i] > 0 ? alpha : 1 - alpha) * std::pow(1 - right, gamma) * std::log(right));
  }
  want.insert(want.end(), {0, 0.75 * 1000});
  const ValueId x = losses.input({6}, logits), t = losses.input({6}, targets);
  expect_near(losses.of(sigmoid_focal(losses.builder, x, t, alpha, gamma)), want);
}

/// Four cells of 8 pixels and a coarser one of 16 and 32 each, all of which predict their own cell's box.
constexpr int64_t kAnchors = 16 + 4 + 1;

/// The losses of two images.
Numbers yolox(Numbers targets, double l1_weight) {
  Losses losses;
  const ValueId raw = losses.input({2, kAnchors, 6}, Numbers(2 * kAnchors * 6, 0));
  const ValueId wanted = losses.input({2, 1, 5}, std::move(targets));
  const ValueId weight = losses.input({2}, {0, l1_weight});
  return losses.of(yolox_losses(losses.builder, raw, wanted, weight, 32, 32));
}

TEST(YoloxLosses, AImageWithoutBoxesIsAllBackground) {
  const double background = 2 * kAnchors * std::log(2);
  expect_near(yolox({-1, 0, 0, 0, 0, -1, 0, 0, 0, 0}, 0), {background, background});
}

TEST(YoloxLosses, WhatAnAnchorLearnsIsAddedToItsImage) {
  // [4, 20] on both axes, of which the second cell of the second row covers a quarter.
  const double background = 2 * kAnchors * std::log(2);
  const double box = 5 * (1 - 0.25 * 0.25), label = std::log(2),
               distance = 0.5 + 0.5 + 2 * std::log(2 + 1e-8);
  const Numbers targets = {-1, 0, 0, 0, 0, 0, 12, 12, 16, 16};
  expect_near(yolox(targets, 0), {background, background + 2 * (box + label)});
  expect_near(yolox(targets, 1), {background, background + 2 * (box + label + distance)});
}

}  // namespace
}  // namespace hearth::tasks
