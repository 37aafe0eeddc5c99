// Layers of convolutions by their definition over weights as files hold them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "nn/module.h"
#include "ops/reference.h"

namespace hearth::nn {
namespace {

/// Different values, none of which is 0.
double value_at(size_t i) { return 0.25 + std::sin(static_cast<double>(3 * i + 1)); }

/// A graph of one layer of an image [2, 4, 5, C].
struct Layer {
  ir::Graph graph;
  Builder builder{graph, Builder::Mode::train, 1};
  ir::ValueId x, y = ir::kNone;
  std::map<ir::ValueId, std::vector<double>> values;

  explicit Layer(int64_t channels)
      : x(builder.input("x", {.dtype = DType::f32, .shape = {2, 4, 5, channels}})) {}

  const Tensor& weight() const { return builder.tensors()[0]; }
  /// The output where files hold value_at() as weights.
  const std::vector<double>& evaluate() {
    for (size_t i = 0; i < size_of(x); ++i) values[x].push_back(value_at(i + 7));
    for (const Tensor& tensor : builder.tensors()) {
      std::vector<float> file, memory(size_of(tensor.value));
      for (size_t i = 0; i < memory.size(); ++i) file.push_back(static_cast<float>(value_at(i)));
      from_file_order(tensor.layout, file.data(), memory.data());
      values[tensor.value].assign(memory.begin(), memory.end());
    }
    ops::evaluate_reference(graph, values);
    return values.at(y);
  }
  double weight_at(const Shape& file, int64_t a, int64_t b, int64_t ky, int64_t kx) const {
    return static_cast<float>(
        value_at(static_cast<size_t>(((a * file[1] + b) * file[2] + ky) * file[3] + kx)));
  }
  size_t size_of(ir::ValueId id) const { return static_cast<size_t>(graph.type(id).shape.num_elements()); }
};

TEST(ConvLayer, GroupsAndDilationFollowTheDefinition) {
  Layer layer(6);
  layer.y = layer.builder.conv(
      "conv", layer.x,
      {.out_channels = 4, .kernel = 3, .padding = 2, .bias = true, .dilation = 2, .groups = 2});
  const Shape file = layer.weight().layout.file_shape;
  ASSERT_EQ(file, (Shape{4, 3, 3, 3}));
  EXPECT_EQ(layer.weight().name, "conv.weight");
  EXPECT_DOUBLE_EQ(layer.weight().init.scale, 1 / std::sqrt(27.0));
  ASSERT_EQ(layer.graph.type(layer.y).shape, (Shape{2, 4, 5, 4}));
  const std::vector<double>& y = layer.evaluate();
  const std::vector<double>& x = layer.values.at(layer.x);
  for (int64_t i = 0; i < std::ssize(y); ++i) {
    const int64_t o = i % 4, ox = i / 4 % 5, oy = i / 20 % 4, n = i / 80;
    double sum = static_cast<float>(value_at(static_cast<size_t>(o)));
    for (int64_t tap = 0; tap < 9; ++tap) {
      const int64_t iy = oy - 2 + 2 * (tap / 3), ix = ox - 2 + 2 * (tap % 3);
      if (iy < 0 || ix < 0 || iy >= 4 || ix >= 5) continue;
      for (int64_t c = 0; c < 3; ++c)
        sum += x[static_cast<size_t>(((n * 4 + iy) * 5 + ix) * 6 + o / 2 * 3 + c)] *
               layer.weight_at(file, o, c, tap / 3, tap % 3);
    }
    ASSERT_NEAR(y[static_cast<size_t>(i)], sum, 1e-9) << i;
  }
}

TEST(ConvLayer, ATransposedOneFollowsTheDefinition) {
  Layer layer(3);
  layer.y = layer.builder.conv_transpose(
      "up", layer.x, {.out_channels = 2, .kernel = 3, .stride = 2, .padding = 1, .out_h = 8});
  const Shape file = layer.weight().layout.file_shape;
  ASSERT_EQ(file, (Shape{3, 2, 3, 3}));
  EXPECT_DOUBLE_EQ(layer.weight().init.scale, 1 / std::sqrt(18.0));
  ASSERT_EQ(layer.graph.type(layer.y).shape, (Shape{2, 8, 9, 2}));
  std::vector<double> expected(2 * 8 * 9 * 2);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<float>(value_at(i % 2));
  const std::vector<double>& y = layer.evaluate();
  const std::vector<double>& x = layer.values.at(layer.x);
  for (int64_t i = 0; i < std::ssize(x); ++i) {
    const int64_t c = i % 3, ix = i / 3 % 5, iy = i / 15 % 4, n = i / 60;
    for (int64_t tap = 0; tap < 9; ++tap) {
      const int64_t oy = 2 * iy - 1 + tap / 3, ox = 2 * ix - 1 + tap % 3;
      if (oy < 0 || ox < 0 || oy >= 8 || ox >= 9) continue;
      for (int64_t o = 0; o < 2; ++o)
        expected[static_cast<size_t>(((n * 8 + oy) * 9 + ox) * 2 + o)] +=
            x[static_cast<size_t>(i)] * layer.weight_at(file, c, o, tap / 3, tap % 3);
    }
  }
  for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-9) << i;
}

TEST(ConvLayer, ANormalStartHasNoBias) {
  Layer layer(3);
  layer.builder.conv("conv", layer.x, {.out_channels = 4, .bias = true, .normal = 0.01});
  EXPECT_EQ(layer.weight().init.kind, Init::Kind::normal);
  EXPECT_EQ(layer.weight().init.scale, 0.01);
  EXPECT_EQ(layer.builder.tensors()[1].init.kind, Init::Kind::constant);
  EXPECT_EQ(layer.builder.tensors()[1].init.scale, 0);
}

TEST(ConvLayer, GroupsThatDoNotShareTheChannelsAreRefused) {
  Layer layer(6);
  try {
    layer.builder.conv("conv", layer.x, {.out_channels = 4, .groups = 4});
    FAIL() << "nothing was refused";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(
                                  "expected a number of groups that divides the 6 input channels of 'conv'"));
  }
}

}  // namespace
}  // namespace hearth::nn
