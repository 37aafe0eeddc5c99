#include "tasks/vision_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tasks/detect/detection_curves.h"
#include "tasks/worst_list.h"

namespace hearth::tasks {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

ClassScores two_classes(const std::vector<std::pair<float, int64_t>>& samples) {
  ClassScores scores(std::ssize(samples), 2);
  for (const auto& [score, truth] : samples) scores.add(std::array{1 - score, score}, truth);
  return scores;
}

TEST(ClassScores, AHandComputedCurve) {
  // By descending score: hit, miss, hit, miss.
  const auto curve = two_classes({{0.9F, 1}, {0.75F, 0}, {0.5F, 1}, {0.25F, 0}}).trace()[1];
  EXPECT_EQ(curve.num_positives, 2);
  EXPECT_DOUBLE_EQ(curve.average_precision, 0.5 * 1 + 0.5 * 2 / 3);
  EXPECT_DOUBLE_EQ(curve.precision_at_recall[0], 1);
  EXPECT_DOUBLE_EQ(curve.precision_at_recall[50], 1);
  EXPECT_DOUBLE_EQ(curve.precision_at_recall[51], 2.0 / 3);
  EXPECT_DOUBLE_EQ(curve.precision_at_recall[100], 2.0 / 3);
  EXPECT_DOUBLE_EQ(curve.f1[100], 0);
  EXPECT_DOUBLE_EQ(curve.f1[80], 2.0 / 3) << "1 hit, 1 predicted, 2 positives";
  EXPECT_DOUBLE_EQ(curve.f1[75], 0.5) << "a score that equals the threshold is predicted";
  EXPECT_DOUBLE_EQ(curve.f1[50], 0.8);
  EXPECT_DOUBLE_EQ(curve.f1[0], 2.0 * 2 / 6);
}

TEST(ClassScores, EqualScoresAreOneThreshold) {
  const auto curve = two_classes({{0.5F, 1}, {0.5F, 0}, {0.5F, 0}, {0.5F, 1}}).trace()[1];
  EXPECT_DOUBLE_EQ(curve.average_precision, 0.5);
  EXPECT_DOUBLE_EQ(curve.precision_at_recall[0], 0.5);
}

TEST(ClassScores, ClassesWithoutPositivesHaveNoCurve) {
  const auto curves = two_classes({{0.25F, 0}, {0.5F, 0}}).trace();
  EXPECT_EQ(curves[1].average_precision, -1);
  EXPECT_TRUE(curves[1].f1.empty());
  const ScoreCurve mean = mean_of(curves);
  EXPECT_EQ(mean.num_positives, 2);
  EXPECT_DOUBLE_EQ(mean.average_precision, 1);
  EXPECT_EQ(mean_of({}).average_precision, -1);
}

TEST(ClassScores, NanIsTheLowestScore) {
  const auto curves = two_classes({{0.25F, 0}, {std::numeric_limits<float>::quiet_NaN(), 1}}).trace();
  EXPECT_DOUBLE_EQ(curves[0].average_precision, 1);
  EXPECT_DOUBLE_EQ(curves[1].average_precision, 0.5);
}

TEST(ClassScores, ManyScoresAreCountedInBins) {
  constexpr int64_t kSamples = 2000, kClasses = 3000;
  ClassScores binned(kSamples, kClasses), exact(kSamples, 2);
  ASSERT_FALSE(binned.is_exact());
  ASSERT_TRUE(exact.is_exact());
  std::vector<float> row(kClasses);
  for (int64_t i = 0; i < kSamples; ++i) {
    // The middles of bins, so that no two different scores share a bin.
    row[0] = (static_cast<float>(i * 7919 % 1000) + 0.5F) / 1000;
    row[1] = 1 - row[0];
    binned.add(row, i * 31 % 3 == 0 ? 0 : 1);
    exact.add(std::span(row).first(2), i * 31 % 3 == 0 ? 0 : 1);
  }
  const auto some = binned.trace();
  const auto all = exact.trace();
  EXPECT_EQ(some[0].f1, all[0].f1);
  EXPECT_EQ(some[0].precision_at_recall, all[0].precision_at_recall);
  EXPECT_DOUBLE_EQ(some[0].average_precision, all[0].average_precision);
}

TEST(Calibration, TheErrorIsTheWeightedGapOfTheBins) {
  Calibration calibration;
  EXPECT_EQ(calibration.expected_error(), 0);
  for (const bool right : {true, true, true, false}) calibration.add(0.95, right);
  calibration.add(0.5, true);
  // Bin of 0.95: |3 - 3.8|; bin of 0.5: |1 - 0.5|; of 5 predictions.
  EXPECT_NEAR(calibration.expected_error(), (0.8 + 0.5) / 5, 1e-12);
  const auto points = calibration.points();
  ASSERT_EQ(points.size(), 2U);
  EXPECT_NEAR(points[1].first, 0.95, 1e-12);
  EXPECT_EQ(points[1].second, 0.75);
}

TEST(Calibration, BinsIncludeTheirUpperEnd) {
  Calibration calibration;
  calibration.add(0, false);
  calibration.add(3.0 / 15, true);
  calibration.add(1, true);
  calibration.add(std::nan(""), false);
  EXPECT_EQ(calibration.bins()[0].count, 2);
  EXPECT_EQ(calibration.bins()[2].count, 1);
  EXPECT_EQ(calibration.bins()[14].count, 1);
}

TEST(WorstList, KeepsTheHighestErrorsAndTheFirstOfEqualOnes) {
  WorstList<int> list(3);
  const double errors[] = {1, 5, 2, 5, std::nan(""), 0, 2, INFINITY};
  for (int i = 0; i < 8; ++i)
    if (list.accepts(errors[i])) list.add(errors[i], i, i);
  std::vector<int> kept;
  for (const auto& entry : list.entries()) kept.push_back(entry.details);
  EXPECT_THAT(kept, ElementsAre(7, 1, 3));
  EXPECT_FALSE(WorstList<int>(0).accepts(1));
}

TEST(VisionFigures, HistogramsNameTheirBins) {
  Histogram boxes({1, 2, 3, 5}, Histogram::Kind::integers, "");
  for (const double count : {0, 1, 3, 4, 9, 5}) boxes.add(count);
  EXPECT_THAT(boxes.counts(), ElementsAre(1, 1, 0, 2, 2));
  EXPECT_THAT(boxes.chart("Boxes"), HasSubstr("<desc>0: 1. 1: 1. 2: 0. 3 to 4: 2. 5 or more: 2. </desc>"));
  Histogram sizes({8, 16}, Histogram::Kind::reals, " px");
  sizes.add(15.5);
  EXPECT_THAT(sizes.chart("Sizes"),
              HasSubstr("<desc>0 to 8 px: 0. 8 to 16 px: 1. 16 px or more: 0. </desc>"));
}

TEST(VisionFigures, ConfusionsAndCountsOfClasses) {
  const std::vector<std::string> names = {"a", "b", "c"};
  const std::vector<int64_t> confusion = {5, 3, 0, 0, 0, 1, 0, 0, 0};
  const ClassCounts counts = counts_of_class(confusion, 3, 1);
  EXPECT_EQ(counts.num_true, 1);
  EXPECT_EQ(counts.num_predicted, 3);
  EXPECT_EQ(counts.recall(), 0);
  EXPECT_DOUBLE_EQ(counts_of_class(confusion, 3, 0).f1(), 10.0 / 13);
  EXPECT_EQ(counts_of_class(confusion, 3, 2).recall(), -1);
  EXPECT_THAT(frequent_confusions(confusion, names).rows,
              ElementsAre(ElementsAre("a", "b", "3", "37.5%"), ElementsAre("b", "c", "1", "100.0%")));
}

TEST(VisionFigures, OnlyTheWeakestOfManyClassesHaveCurves) {
  std::vector<ScoreCurve> curves;
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) {
    curves.push_back({.num_positives = 1,
                      .average_precision = 0.5 + 0.01 * i,
                      .precision_at_recall = std::vector<double>(kCurvePoints, 0.5),
                      .f1 = std::vector<double>(kCurvePoints, 0.25)});
    names.push_back("class" + std::string(1, static_cast<char>('a' + i)));
  }
  const io::ReportSection section = precision_section(curves, names, "Rule.");
  ASSERT_EQ(section.charts.size(), 2U);
  EXPECT_THAT(section.charts[0], HasSubstr("classi 58.0%"));
  EXPECT_THAT(section.charts[0], Not(HasSubstr("classj")));
  EXPECT_THAT(section.note, HasSubstr("0.250, at a threshold of 0.00. The classes with the lowest"));
  EXPECT_TRUE(precision_section({}, {}, "").charts.empty());
}

TEST(ImageErrors, WrongDetectionsCountByScoreAndMissedObjectsByOne) {
  const auto box = [](double x, int32_t label) {
    return Truth{.x = x, .y = 0, .width = 10, .height = 10, .area = 100, .label = label};
  };
  const auto hit = [](double x, int32_t label, double score) {
    return Detection{.x = x, .y = 0, .width = 10, .height = 10, .score = score, .label = label};
  };
  EvaluatedImage image{.truths = {box(0, 0), box(50, 1)},
                       .detections = {hit(0, 0, 0.9), hit(50, 0, 0.75), hit(100, 1, 0.1)}};
  const ImageErrors errors = count_errors(image, 0.25);
  EXPECT_EQ(errors.num_wrong, 1) << "the score of the third is too low";
  EXPECT_EQ(errors.num_missed, 1);
  EXPECT_DOUBLE_EQ(errors.error, 1.75);
  image.truths[1].ignored = true;
  EXPECT_DOUBLE_EQ(count_errors(image, 0.25).error, 0.75) << "its class differs from that of the ignored box";
}

}  // namespace
}  // namespace hearth::tasks
