#include "nn/int8.h"

#include <gmock/gmock.h>

#include <set>

#include "base/group_format.h"
#include "models/model.h"

namespace hearth::models {
namespace {

using testing::Contains;
using testing::Not;

/// Names of the ranges of a model.
std::set<std::string> ranges_of(const std::string& model) {
  ir::Graph graph;
  nn::Builder builder(graph, nn::Builder::Mode::eval, 0);
  const ModelOptions options{.name = model, .num_classes = 3, .image_size = 64};
  const auto images = builder.input("images", {.dtype = DType::f32, .shape = {2, 64, 64, 3}});
  find_model(model).build(builder, images, options);
  std::set<std::string> names;
  for (const nn::RoundedActivation& activation : nn::activations_to_round(builder))
    EXPECT_TRUE(names.insert(activation.range).second) << activation.range;
  return names;
}

TEST(Int8Graph, RoundsAResidualSumAfterItsReluOnly) {
  const std::set<std::string> ranges = ranges_of("resnet18");
  EXPECT_THAT(ranges, Contains("layer1.0.relu.activation_range"));
  EXPECT_THAT(ranges, Contains("layer1.0.relu.activation_range_2"));
  EXPECT_THAT(ranges, Not(Contains("layer1.0.add.activation_range")));
  EXPECT_THAT(ranges, Contains("layer1.0.bn2.activation_range"));
  EXPECT_THAT(ranges, Not(Contains("layer1.0.conv2.activation_range")));
  EXPECT_THAT(ranges, Not(Contains("fc.activation_range")));
  EXPECT_THAT(ranges, Contains("images.activation_range"));
}

TEST(Int8Graph, CodesAreThoseOfOnnx) {
  constexpr GroupFormat kBytes = GroupFormat::int8_affine, kWeights = GroupFormat::int8_channel;
  const GroupScale grid = group_scale(kBytes, -1, 3);
  EXPECT_EQ(grid.zero, 64 - 128);
  EXPECT_EQ(group_value(group_code(kBytes, 0, grid), grid), 0);
  EXPECT_EQ(group_code(kBytes, 100, grid), 127);
  EXPECT_EQ(group_code(kBytes, -100, grid), -128);
  EXPECT_EQ(group_code(kBytes, 2.5F * grid.scale, grid), 66 - 128) << "half to even";
  const GroupScale weights = group_scale(kWeights, -2.54F, 1);
  EXPECT_EQ(weights.scale, 2.54F / 127);
  EXPECT_EQ(group_code(kWeights, -2.54F, weights), -127);
  EXPECT_EQ(group_code(kWeights, 2.54F, weights), 127);
}

}  // namespace
}  // namespace hearth::models
