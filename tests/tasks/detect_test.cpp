#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "coco_results.h"
#include "tasks/detect/coco_eval.h"
#include "tasks/detect/detection_curves.h"
#include "tasks/detect/nms.h"

namespace hearth::tasks {
namespace {

using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

Truth truth(double x, double y, double side, int32_t label = 0) {
  return {.x = x, .y = y, .width = side, .height = side, .area = side * side, .label = label};
}
Detection found(double x, double y, double side, double score, int32_t label = 0) {
  return {.x = x, .y = y, .width = side, .height = side, .score = score, .label = label};
}

TEST(CocoNumbers, PerfectAndEmpty) {
  std::vector<EvaluatedImage> images{{.id = 1, .truths = {truth(0, 0, 20), truth(50, 50, 40, 1)}}};
  CocoResult result = evaluate_coco(images, 3);
  EXPECT_THAT(result.numbers, ElementsAre(0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, -1));
  EXPECT_EQ(result.classes[2].ap, -1);
  EXPECT_EQ(result.classes[0].truths, 1);
  images[0].detections = {found(0, 0, 20, 0.5), found(50, 50, 40, 0.1, 1)};
  result = evaluate_coco(images, 3);
  EXPECT_THAT(result.numbers, ElementsAre(DoubleEq(1), DoubleEq(1), DoubleEq(1), DoubleEq(1), DoubleEq(1), -1,
                                          1, 1, 1, 1, 1, -1));
  EXPECT_EQ(result.classes[0].precision_at_recall.size(), 101U);
  EXPECT_THAT(evaluate_coco({}, 1).numbers, Each(-1));
}

TEST(CocoNumbers, AMissAboveAHitHalvesPrecision) {
  const std::vector<EvaluatedImage> images{
      {.id = 1, .truths = {truth(0, 0, 20)}, .detections = {found(0, 0, 20, 0.5), found(60, 60, 20, 0.9)}}};
  const CocoResult result = evaluate_coco(images, 1);
  EXPECT_NEAR(result.numbers[0], 0.5, 1e-12);
  EXPECT_EQ(result.numbers[6], 0);
  EXPECT_EQ(result.numbers[7], 1);
}

TEST(CocoNumbers, CrowdsAndIgnoredTruthsCountForNothing) {
  std::vector<EvaluatedImage> images{
      {.id = 1, .truths = {truth(0, 0, 20), truth(100, 100, 80)}, .detections = {found(0, 0, 20, 0.5)}}};
  // Both lie in the crowd, where they cover little of it.
  images[0].detections.push_back(found(100, 100, 10, 0.9));
  images[0].detections.push_back(found(120, 120, 10, 0.8));
  EXPECT_LT(evaluate_coco(images, 1).numbers[0], 0.2);
  images[0].truths[1].crowd = images[0].truths[1].ignored = true;
  EXPECT_NEAR(evaluate_coco(images, 1).numbers[0], 1, 1e-12);
}

TEST(CocoNumbers, TiesGoToTheImageOfTheLowerId) {
  std::vector<EvaluatedImage> images{
      {.id = 9, .truths = {truth(0, 0, 20)}, .detections = {found(0, 0, 20, 0.5)}},
      {.id = 3, .detections = {found(0, 0, 20, 0.5)}}};
  EXPECT_NEAR(evaluate_coco(images, 1).numbers[0], 0.5, 1e-12);
  images[1].id = 10;
  EXPECT_NEAR(evaluate_coco(images, 1).numbers[0], 1, 1e-12);
}

TEST(CocoNumbers, SummaryInItsOwnWords) {
  const std::string text = coco_summary({0.12345, 1, -1, 0, 0, 0, 0, 0, 0.5, 0, 0, 0});
  EXPECT_THAT(text,
              HasSubstr(" Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.123\n"));
  EXPECT_THAT(text,
              HasSubstr(" Average Precision  (AP) @[ IoU=0.50      | area=   all | maxDets=100 ] = 1.000\n"));
  EXPECT_THAT(
      text, HasSubstr(" Average Precision  (AP) @[ IoU=0.75      | area=   all | maxDets=100 ] = -1.000\n"));
  EXPECT_THAT(text,
              HasSubstr(" Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets= 10 ] = 0.000\n"));
  EXPECT_THAT(text,
              HasSubstr(" Average Recall     (AR) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = 0.000\n"));
  EXPECT_EQ(std::ranges::count(text, '\n'), 12);
}

TEST(Nms, TheBestOfEachClassAndPlace) {
  const std::vector<Detection> kept =
      suppress({found(0, 0, 20, 0.5), found(1, 0, 20, 0.9), found(1, 0, 20, 0.9, 1), found(60, 0, 20, 0.7),
                found(60, 0, 20, 0.7), found(90, 0, 20, 0.001), found(90, 0, 20, std::nan(""))},
               {});
  ASSERT_EQ(kept.size(), 3U);
  EXPECT_EQ(kept[0].x, 1);
  EXPECT_EQ(kept[0].label, 0);
  EXPECT_EQ(kept[1].label, 1);
  EXPECT_EQ(kept[2].x, 60);
}

TEST(Nms, IsBounded) {
  std::vector<Detection> many;
  for (int i = 0; i < 5000; ++i) many.push_back(found(i * 30, 0, 20, 0.5));
  const std::vector<Detection> kept = suppress(many, {});
  ASSERT_EQ(kept.size(), 100U);
  EXPECT_EQ(kept[99].x, 99 * 30);
  EXPECT_EQ(suppress(many, {.candidates = 7}).size(), 7U);
}

TEST(Confidence, CurvesCountWhatReachesAScore) {
  const std::vector<EvaluatedImage> images{
      {.id = 1,
       .truths = {truth(0, 0, 20), truth(50, 0, 20)},
       .detections = {found(0, 0, 20, 0.29), found(50, 0, 20, 0.9), found(0, 60, 20, 0.5)}}};
  const ConfidenceCurves curves = trace_confidence(images, 2);
  const auto& curve = curves.classes[0];
  EXPECT_EQ(curve.precision[100], 1);
  EXPECT_EQ(curve.recall[91], 0);
  EXPECT_EQ(curve.recall[90], 0.5);
  EXPECT_EQ(curve.precision[50], 0.5);
  EXPECT_EQ(curve.recall[30], 0.5);
  EXPECT_EQ(curve.recall[29], 1);
  EXPECT_DOUBLE_EQ(curve.f1[29], 0.8);
  EXPECT_EQ(curves.mean.f1, curve.f1);
  EXPECT_EQ(curves.best_score, 0);
  EXPECT_DOUBLE_EQ(curves.best_f1, 0.8);
  EXPECT_THAT(curves.classes[1].f1, Each(0));
}

TEST(Confusions, WithTheBackground) {
  std::vector<EvaluatedImage> images{
      {.id = 1,
       .truths = {truth(0, 0, 20), truth(50, 0, 20, 1), truth(0, 90, 20)},
       .detections = {found(1, 0, 20, 0.5), found(0, 0, 20, 0.3, 1), found(50, 0, 20, 0.9),
                      found(0, 50, 20, 0.9, 1), found(0, 90, 20, 0.2)}}};
  // Rows are what was found: the box of class 1 that covers the first truth exactly takes it.
  EXPECT_THAT(count_confusions(images, 2), ElementsAre(0, 1, 1, 1, 0, 1, 1, 0, 0));
  images[0].truths[1].ignored = true;
  EXPECT_THAT(count_confusions(images, 2), ElementsAre(0, 0, 1, 1, 0, 1, 1, 0, 0));
}

TEST(DetectionFiles, ResultsReadAsTheyWereWritten) {
  const data::BoxedImages set{.class_names = {"a", "b"},
                              .category_ids = {3, 90},
                              .images = {{.file = "x.png", .id = 7}, {.file = "y.png", .id = 5}}};
  std::vector<EvaluatedImage> images = truths_of(set);
  images[1].detections = {found(0.1, 1.0 / 3, 20, 1e-7, 1), found(1, 2, 3, 0.5)};
  const std::string text = write_coco_results(images, set.category_ids);
  EXPECT_THAT(
      text,
      HasSubstr("{\"image_id\": 5, \"category_id\": 90, \"bbox\": [0.1, 0.3333333333333333, 20, 20], "));
  const auto read = read_coco_results(text, set);
  ASSERT_EQ(read[1].detections.size(), 2U);
  EXPECT_EQ(read[1].detections[0].y, 1.0 / 3);
  EXPECT_EQ(read[1].detections[0].score, 1e-7);
  EXPECT_EQ(read[1].detections[0].label, 1);
  EXPECT_EQ(write_coco_results({}, set.category_ids), "[]\n");
  EXPECT_TRUE(read_coco_results("[]", set)[0].detections.empty());
}

TEST(DetectionFiles, YoloLines) {
  EXPECT_EQ(write_yolo_labels(std::vector{found(10, 20, 20, 0.5, 2)}, 100, 50),
            "2 0.200000 0.600000 0.200000 0.400000 0.500000\n");
}

}  // namespace
}  // namespace hearth::tasks
