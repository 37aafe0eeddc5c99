// Layers without convolutions: what they are made of, and what trains in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ir/op_def.h"
#include "nn/module.h"

namespace hearth::nn {
namespace {

struct Layer {
  ir::Graph graph;
  Builder builder;
  ir::ValueId x;

  explicit Layer(Builder::Mode mode = Builder::Mode::train)
      : builder(graph, mode, 1), x(builder.input("x", {.dtype = DType::f32, .shape = {2, 4, 5, 6}})) {}

  const ir::Node& maker_of(ir::ValueId y) const { return graph.node(graph.value(y).producer); }
  std::map<std::string, ir::Role> roles() const {
    std::map<std::string, ir::Role> made;
    for (const Tensor& tensor : builder.tensors()) made[tensor.name] = graph.value(tensor.value).role;
    return made;
  }
};

TEST(BatchNorm, TakesItsOptions) {
  Layer layer;
  const ir::Node& node =
      layer.maker_of(layer.builder.batch_norm("bn", layer.x, {.eps = 1e-3, .momentum = 0.03}));
  EXPECT_EQ(node.op->name, "batch_norm");
  EXPECT_EQ(node.attrs.real("eps"), 1e-3);
  EXPECT_EQ(node.attrs.real("momentum"), 0.03);
  Layer evaluated(Builder::Mode::eval);
  const ir::Node& given = evaluated.maker_of(evaluated.builder.batch_norm("bn", evaluated.x, {.eps = 1e-3}));
  EXPECT_EQ(given.op->name, "batch_norm_infer");
  EXPECT_EQ(given.attrs.real("eps"), 1e-3);
}

TEST(BatchNorm, FrozenNothingOfItTrains) {
  Layer layer;
  const ir::Node& node = layer.maker_of(layer.builder.batch_norm("bn", layer.x, {.frozen = true}));
  EXPECT_EQ(node.op->name, "batch_norm_infer");
  const auto roles = layer.roles();
  EXPECT_EQ(roles.size(), 4U);
  for (const auto& [name, role] : roles) EXPECT_EQ(role, ir::Role::state) << name;
}

TEST(GroupNorm, HasAWeightAndABiasPerChannel) {
  Layer layer;
  const ir::ValueId y = layer.builder.group_norm("gn", layer.x, 3, 1e-6);
  EXPECT_EQ(layer.graph.type(y).shape, (Shape{2, 4, 5, 6}));
  EXPECT_EQ(layer.maker_of(y).attrs.integer("groups"), 3);
  EXPECT_EQ(layer.maker_of(y).attrs.real("eps"), 1e-6);
  EXPECT_THAT(layer.roles(), testing::ElementsAre(testing::Pair("gn.bias", ir::Role::parameter),
                                                  testing::Pair("gn.weight", ir::Role::parameter)));
}

TEST(GroupNorm, RefusesGroupsOfDifferentSize) {
  Layer layer;
  try {
    layer.builder.group_norm("gn", layer.x, 4);
    FAIL() << "accepted 4 groups of 6 channels";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("6 channels are not divisible by 4 groups"));
  }
}

TEST(Concat, WidensTheLastAxis) {
  Layer layer;
  EXPECT_EQ(layer.graph.type(layer.builder.concat({layer.x, layer.x, layer.x})).shape, (Shape{2, 4, 5, 18}));
}

TEST(Resize, AlignsCornersOnRequest) {
  Layer layer;
  const ir::ValueId plain = layer.builder.resize(layer.x, 8, 8, true);
  EXPECT_FALSE(layer.maker_of(plain).attrs.contains("align_corners"));
  const ir::ValueId aligned = layer.builder.resize(layer.x, 8, 8, true, true);
  EXPECT_EQ(layer.maker_of(aligned).attrs.integer("align_corners"), 1);
}

}  // namespace
}  // namespace hearth::nn
