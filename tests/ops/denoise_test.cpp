// What formulas that kernel and reference share, and tables of positions, must come to.
#include <gtest/gtest.h>

#include <cmath>

#include "base/threads.h"
#include "ir/op_def.h"
#include "ops/op_list.h"

namespace hearth::ops {
namespace {

/// The rows of an op's only output, its only input, if any, being f32 [count].
std::vector<std::vector<float>> rows_of(std::string_view name, std::vector<float> in,
                                        const ir::Attrs& attrs) {
  const ir::OpDef& op = *find_op(name);
  std::vector<ir::Type> types;
  std::vector<void*> pointers;
  if (!in.empty()) {
    types.push_back({.dtype = DType::f32, .shape = {std::ssize(in)}});
    pointers.push_back(in.data());
  }
  const ir::Inferred inferred = op.infer({.attrs = attrs, .in = types, .out = {}});
  EXPECT_EQ(inferred.error, "");
  const ir::Kernel kernel = op.cpu({.attrs = attrs, .in = types, .out = inferred.out});
  const Shape& shape = inferred.out[0].shape;
  std::vector<float> flat(static_cast<size_t>(shape.num_elements()));
  std::vector<void*> out = {flat.data()};
  ThreadPool threads(1);
  kernel.run({.in = pointers, .out = out, .threads = &threads});
  std::vector<std::vector<float>> rows;
  for (auto at = flat.begin(); at != flat.end(); at += shape[1]) rows.emplace_back(at, at + shape[1]);
  return rows;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(static_cast<double>(got[i]), expected[i], 1e-6) << i;
}

ir::Attrs embedding(int64_t size, int64_t cos_first, int64_t shift) {
  return {{"size", size}, {"cos_first", cos_first}, {"shift", shift}, {"max_period", 10000.0}};
}

TEST(TimestepEmbedding, IsSinusoidsOfFallingFrequencies) {
  const auto rows = rows_of("timestep_embedding", {0, 3}, embedding(4, 1, 0));
  expect_near(rows[0], {1, 1, 0, 0});
  expect_near(rows[1], {std::cos(3.0), std::cos(0.03), std::sin(3.0), std::sin(0.03)});
  expect_near(rows_of("timestep_embedding", {3}, embedding(4, 0, 0))[0],
              {std::sin(3.0), std::sin(0.03), std::cos(3.0), std::cos(0.03)});
}

TEST(TimestepEmbedding, AShiftReachesTheLastFrequencyAndAnOddSizeEndsInZero) {
  expect_near(rows_of("timestep_embedding", {500}, embedding(5, 0, 1))[0],
              {std::sin(500.0), std::sin(0.05), std::cos(500.0), std::cos(0.05), 0});
}

ir::Attrs table(int64_t batch, int64_t text, const std::vector<int64_t>& axes) {
  return {{"batch", batch},      {"text", text}, {"height", int64_t{2}},
          {"width", int64_t{3}}, {"axes", axes}, {"theta", 100.0}};
}
/// cos of the angles, then sin.
std::vector<double> turns(const std::vector<double>& angles) {
  std::vector<double> made;
  for (const double angle : angles) made.push_back(std::cos(angle));
  for (const double angle : angles) made.push_back(std::sin(angle));
  return made;
}

TEST(AxesRopeTable, ThreeAxesHaveRowAndColumnLast) {
  const auto rows = rows_of("axes_rope_table", {}, table(2, 1, {2, 4, 2}));
  ASSERT_EQ(rows.size(), 14U);
  expect_near(rows[0], turns({0, 0, 0, 0}));
  expect_near(rows[3], turns({0, 0, 0, 2}));
  expect_near(rows[6], turns({0, 1, 0.1, 2}));
  expect_near(rows[13], turns({0, 1, 0.1, 2}));
}
TEST(AxesRopeTable, FourAxesNumberTheTextInTheLast) {
  const auto rows = rows_of("axes_rope_table", {}, table(1, 4, {2, 2, 2, 2}));
  expect_near(rows[3], turns({0, 0, 0, 3}));
  expect_near(rows[4 + 5], turns({0, 1, 2, 0}));
}
TEST(AxesRopeTable, TwoAxesAreRowAndColumn) {
  const auto rows = rows_of("axes_rope_table", {}, table(1, 0, {2, 2}));
  expect_near(rows[5], turns({1, 2}));
}

}  // namespace
}  // namespace hearth::ops
