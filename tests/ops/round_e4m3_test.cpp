#include "ops/matmul/round_e4m3.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/threads.h"
#include "ops/op_list.h"

namespace hearth::ops {
namespace {

std::vector<float> rounded(std::vector<float> x, const Shape& shape, const ScaleBlock& block) {
  const ir::Attrs attrs = {{"block_rows", block.rows}, {"block_columns", block.columns}};
  const ir::Type type{.dtype = DType::f32, .shape = shape};
  const ir::Kernel kernel = round_e4m3.cpu({.attrs = attrs, .in = {&type, 1}, .out = {&type, 1}});
  std::vector<float> y(x.size());
  std::vector<std::byte> workspace(static_cast<size_t>(kernel.workspace_bytes));
  ThreadPool threads(1);
  void* in = x.data();
  void* out = y.data();
  kernel.run({.in = {&in, 1}, .out = {&out, 1}, .workspace = workspace.data(), .threads = &threads});
  return y;
}

TEST(RoundE4m3, AnOutlierCostsItsBlockAlone) {
  const std::vector<float> x = {1, 0.3F, 1e6F, 0.3F, 1, 0.3F};
  const std::vector<float> rows = rounded(x, {3, 2}, {1, 0});
  EXPECT_EQ(rows[0], 1);
  EXPECT_NEAR(rows[1], 0.3, 0.3 / 16);
  EXPECT_NEAR(rows[2], 1e6, 1e6 / 16);
  EXPECT_EQ(rows[3], 0) << "below half of the smallest E4M3 value times the scale of 1e6";
  EXPECT_EQ(rows[4], 1);
  const std::vector<float> columns = rounded(x, {3, 2}, {0, 1});
  EXPECT_EQ(columns[0], 0);
  EXPECT_NEAR(columns[1], 0.3, 0.3 / 16);
  EXPECT_NEAR(columns[2], 1e6, 1e6 / 16);
  const std::vector<float> tensor = rounded(x, {3, 2}, {0, 0});
  EXPECT_EQ(tensor[1], 0);
  EXPECT_EQ(tensor[2], columns[2]);
}

TEST(RoundE4m3, ZerosStayZeros) {
  for (const ScaleBlock& block : {ScaleBlock{1, 0}, {0, 1}, {0, 0}, {1, 128}, {128, 128}})
    EXPECT_EQ(rounded(std::vector<float>(6), {3, 2}, block), std::vector<float>(6));
}

TEST(RoundE4m3, NonFiniteElementsMakeTheirBlockNan) {
  for (const float bad : {std::numeric_limits<float>::infinity(), NAN}) {
    for (const ScaleBlock& block : {ScaleBlock{1, 0}, {1, 2}, {0, 1}}) {
      const std::vector<float> y = rounded({1, bad, 1, 1}, {2, 2}, block);
      EXPECT_EQ(std::isnan(y[0]), block.rows == 1);
      EXPECT_TRUE(std::isnan(y[1]));
      EXPECT_EQ(y[2], 1);
      EXPECT_EQ(std::isnan(y[3]), block.rows == 0);
    }
  }
}

}  // namespace
}  // namespace hearth::ops
