#include "ops/exponential.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ops/elementwise/elementwise.h"

namespace hearth::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
/// Relative distance of neighbors among f32 at most.
constexpr double kUlp = 1.1920929e-7;

std::vector<float> of_op(std::string_view op, std::vector<float> x) {
  std::vector<float> made(x.size());
  elementwise_op(op).elementwise(x.data(), x.data(), made.data(), std::ssize(x), 0, 0);
  return made;
}

std::vector<float> line(float from, float to, int count) {
  std::vector<float> made;
  for (int i = 0; i < count; ++i)
    made.push_back(from + (to - from) * static_cast<float>(i) / static_cast<float>(count - 1));
  return made;
}

TEST(Exponential, IsExactToTwoUnitsOfTheLastPlace) {
  const std::vector<float> x = line(-87, 88.7F, 100'003), made = of_op("exp", x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(made[i], exact, 2 * kUlp * exact) << x[i];
  }
}

TEST(Exponential, EndsWhereFloatsEnd) {
  const std::vector<float> made =
      of_op("exp", {-kInfinity, -1000, -104, -103, 0, -0.0F, 88.72F, 88.73F, 1000, kInfinity, kNaN});
  const std::vector<float> exact = {0,         0,         0,        std::exp(-103.0F), 1, 1, std::exp(88.72F),
                                    kInfinity, kInfinity, kInfinity};
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_FLOAT_EQ(made[i], exact[i]) << i;
  EXPECT_TRUE(std::isnan(made.back()));
}

TEST(Softplus, IsExactFarFromZeroToo) {
  const std::vector<float> x = line(-80, 80, 100'003), made = of_op("softplus", x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::log1p(std::exp(static_cast<double>(x[i])));
    ASSERT_NEAR(made[i], exact, 5 * kUlp * exact) << x[i];
  }
  const std::vector<float> ends = of_op("softplus", {-kInfinity, -200, 200, kInfinity, kNaN});
  EXPECT_EQ(ends[0], 0);
  EXPECT_EQ(ends[1], 0);
  EXPECT_EQ(ends[2], 200);
  EXPECT_EQ(ends[3], kInfinity);
  EXPECT_TRUE(std::isnan(ends[4]));
}

TEST(Sigmoid, IsExactToFiveMillionthsOfItself) {
  const std::vector<float> x = line(-87, 87, 100'003), made = of_op("sigmoid", x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = 1 / (1 + std::exp(-static_cast<double>(x[i])));
    ASSERT_NEAR(made[i], exact, std::min(5e-6 * exact, 1.5e-7)) << x[i];
  }
}

TEST(Sigmoid, KeepsItsEnds) {
  const std::vector<float> ends = of_op("sigmoid", {-kInfinity, -200, -90, 0, 90, 200, kInfinity, kNaN});
  const std::vector<float> exact = {0, 0, 0, 0.5, 1, 1, 1};
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_FLOAT_EQ(ends[i], exact[i]) << i;
  EXPECT_TRUE(std::isnan(ends.back()));
}

TEST(Silu, KeepsItsEnds) {
  const std::vector<float> ends = of_op("silu", {-200, 200, kInfinity, kNaN});
  EXPECT_EQ(ends[0], 0);
  EXPECT_EQ(ends[1], 200);
  EXPECT_EQ(ends[2], kInfinity);
  EXPECT_TRUE(std::isnan(ends[3]));
}

}  // namespace
}  // namespace hearth::ops
