// Values and gradients of fake_quantize_groups that can be computed by hand.
#include <gtest/gtest.h>

#include <limits>

#include "base/group_format.h"
#include "base/threads.h"
#include "ops/op_list.h"

namespace hearth::ops {
namespace {

/// Rounded values and, with a gradient of 1 for each of them, the gradient of x.
struct Rounded {
  std::vector<float> y, dx;
};

std::vector<float> run(const char* name, GroupFormat format, const Shape& shape, int64_t group,
                       std::vector<std::vector<float>> arrays) {
  ir::StandaloneNode node{
      .attrs = {{"format", std::string(name_of(format))}, {"group", group}, {"first_step", int64_t{0}}}};
  std::vector<void*> in;
  for (auto& array : arrays) {
    node.in.push_back({.dtype = DType::f32, .shape = array.size() == 2 ? Shape{2} : shape});
    in.push_back(array.data());
  }
  if (arrays.back().size() == 2) {  // A range comes after the counter, which is absent.
    node.in.insert(node.in.end() - 1, {.dtype = DType::boolean, .shape = {}});
    in.insert(in.end() - 1, nullptr);
  }
  node.out = {node.in[0]};
  const ir::OpDef& op_def = op(name);
  EXPECT_EQ(op_def.infer(node.view()).error, "");
  std::vector<float> out(arrays[0].size());
  std::vector<void*> outs = {out.data()};
  ThreadPool threads(2);
  op_def.cpu(node.view()).run({.in = in, .out = outs, .threads = &threads});
  return out;
}

Rounded rounded(GroupFormat format, const Shape& shape, int64_t group, const std::vector<float>& x,
                const std::vector<float>& range = {}) {
  std::vector<std::vector<float>> forward = {x}, backward = {x, std::vector<float>(x.size(), 1)};
  if (!range.empty()) {
    forward.push_back(range);
    backward.push_back(range);
  }
  return {run("fake_quantize_groups", format, shape, group, forward),
          run("fake_quantize_groups_grad", format, shape, group, backward)};
}

TEST(FakeQuantizeGroups, Int4RoundsToEvenAndClipsTheLargest) {
  const Rounded found =
      rounded(GroupFormat::int4, {1, 8}, 8, {7.5F, -7.5F, 2.5F, 1.5F, -0.4F, 0, 6.6F, -6.5F});
  EXPECT_EQ(found.y, (std::vector<float>{7, -8, 2, 2, 0, 0, 7, -6}));
  EXPECT_EQ(found.dx, (std::vector<float>{0, 1, 1, 1, 1, 1, 1, 1}));
}

TEST(FakeQuantizeGroups, EachGroupHasAScaleInBf16) {
  const Rounded found = rounded(GroupFormat::int4, {2, 4}, 2, {7.5F, 1, 75, 1, 0, 0, 3, 3});
  EXPECT_EQ(found.y[0], 7);
  EXPECT_EQ(found.y[2], 70);
  EXPECT_EQ(found.y[3], 0);
  EXPECT_EQ(found.y[4], 0);
  const float scale = as_bf16(3 / 7.5F);
  EXPECT_NE(scale, 3 / 7.5F);
  EXPECT_EQ(found.y[6], 7 * scale);
}

TEST(FakeQuantizeGroups, ColumnsHaveAScaleEach) {
  const Rounded found = rounded(GroupFormat::int8, {3, 2}, 0, {127.5F, 1, -3.4F, 0.5F, 0, -127.5F});
  EXPECT_EQ(found.y, (std::vector<float>{127, 1, -3, 0, 0, -128}));
  EXPECT_EQ(found.dx, (std::vector<float>{0, 1, 1, 1, 1, 1}));
}

TEST(FakeQuantizeGroups, AffineExtendsTheRangeToZero) {
  const Rounded found = rounded(GroupFormat::int8_affine, {1, 4}, 4, {1.4F, 255, 100.5F, 3});
  EXPECT_EQ(found.y, (std::vector<float>{1, 255, 100, 3}));
}

TEST(FakeQuantizeGroups, AGivenRangeClipsOtherElements) {
  const Rounded found = rounded(GroupFormat::int8_affine, {2, 2}, 0, {-60, 300, 100.2F, -51}, {-51, 204});
  EXPECT_EQ(found.y, (std::vector<float>{-51, 204, 100, -51}));
  EXPECT_EQ(found.dx, (std::vector<float>{0, 0, 1, 1}));
}

TEST(FakeQuantizeGroups, Fp8RoundsNormalAndSubnormalValues) {
  const Rounded found = rounded(GroupFormat::fp8_token, {1, 8}, 8,
                                {448, 17, 19, -0x1p-10F, 0x1.8p-9F, 0x1.Fp-7F, -1.0625F, 431});
  EXPECT_EQ(found.y, (std::vector<float>{448, 16, 20, 0, 0x1p-8F, 0x1p-6F, -1, 416}));
}

/// Whether the code of a token's largest element is 127.5 or one bit less does not affect its gradient.
TEST(FakeQuantizeGroups, EveryElementOfATokenHasAGradient) {
  for (const GroupFormat format : {GroupFormat::int8_token, GroupFormat::fp8_token}) {
    std::vector<float> x(64);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 0.1F * static_cast<float>(i);
    EXPECT_EQ(rounded(format, {4, 16}, 16, x).dx, std::vector<float>(64, 1));
  }
}

TEST(FakeQuantizeGroups, NotANumberStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const GroupFormat format : {GroupFormat::int4, GroupFormat::fp8, GroupFormat::int8_affine}) {
    const Rounded found = rounded(format, {1, 3}, 3, {nan, 1, -1});
    EXPECT_TRUE(std::isnan(found.y[0]));
    EXPECT_FALSE(std::isnan(found.y[1]));
  }
}

}  // namespace
}  // namespace hearth::ops
