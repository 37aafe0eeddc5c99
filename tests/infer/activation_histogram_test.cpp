#include "infer/activation_histogram.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/group_format.h"
#include "base/philox.h"

namespace hearth::infer {
namespace {

std::vector<float> uniform(float low, float high, int64_t count) {
  PhiloxSequence random(1, 2);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.uniform(low, high);
  return values;
}

double squared_error(const std::vector<float>& values, nn::ActivationRange range) {
  const GroupScale grid = group_scale(GroupFormat::int8_affine, range.low, range.high);
  double error = 0;
  for (const float value : values) {
    const double gap =
        static_cast<double>(group_value(group_code(GroupFormat::int8_affine, value, grid), grid) - value);
    error += gap * gap;
  }
  return error;
}

TEST(ActivationHistogram, KeepsTheRangeOfUniformValues) {
  ActivationHistogram histogram;
  histogram.add(uniform(-0.5F, 2, 10000));
  EXPECT_NEAR(histogram.best_range().low, -0.5, 0.05);
  EXPECT_NEAR(histogram.best_range().high, 2, 0.1);
}

TEST(ActivationHistogram, ClipsRareLargeValues) {
  std::vector<float> values = uniform(0, 1, 100000);
  ActivationHistogram histogram;
  histogram.add(values);
  // The histogram has to widen for it.
  histogram.add(std::vector<float>{8});
  values.push_back(8);
  EXPECT_EQ(histogram.min_max().low, 0);
  EXPECT_EQ(histogram.min_max().high, 8);
  const nn::ActivationRange best = histogram.best_range();
  EXPECT_LT(best.high, 8);
  EXPECT_LT(squared_error(values, best), 0.9 * squared_error(values, histogram.min_max()));
}

TEST(ActivationHistogram, TakesZerosAndNothing) {
  ActivationHistogram histogram;
  histogram.add({});
  histogram.add(std::vector<float>(5));
  EXPECT_EQ(histogram.best_range().low, 0);
  EXPECT_EQ(histogram.best_range().high, 0);
}

TEST(ActivationHistogram, RefusesValuesThatAreNotFinite) {
  ActivationHistogram histogram;
  EXPECT_THROW(histogram.add(std::vector{1.0F, std::numeric_limits<float>::infinity()}), UserError);
}

}  // namespace
}  // namespace hearth::infer
