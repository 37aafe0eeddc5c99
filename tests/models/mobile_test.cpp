// MobileNetV3 and EfficientNet: weights, names and shapes are torchvision's, and small images keep their
// size for longer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ir/op_def.h"
#include "models/model.h"

namespace hearth::models {
namespace {

using testing::Pair;

struct GrownMobile {
  ir::Graph graph;
  std::map<std::string, Shape> files;  ///< of weights and statistics, as files hold them
  std::map<std::string, nn::Init> inits;
  int64_t num_weights = 0;
};
GrownMobile grow_mobile(std::string_view model, ModelOptions options,
                        nn::Builder::Mode mode = nn::Builder::Mode::train) {
  GrownMobile made;
  nn::Builder builder(made.graph, mode, 1);
  const ir::ValueId images = builder.input(
      "images", {.dtype = DType::f32,
                 .shape = {2, options.image_size.height, options.image_size.width, options.channels}});
  const Outputs outputs = find_model(model).build(builder, images, options);
  EXPECT_EQ(made.graph.type(outputs.logits).shape, (Shape{2, options.num_classes}));
  for (const nn::Tensor& tensor : builder.tensors()) {
    made.files[tensor.name] = tensor.layout.file_shape;
    made.inits[tensor.name] = tensor.init;
    if (tensor.trainable) made.num_weights += made.graph.type(tensor.value).shape.num_elements();
  }
  return made;
}

/// Nodes of that op.
std::vector<const ir::Node*> nodes_of(const ir::Graph& graph, std::string_view op) {
  std::vector<const ir::Node*> made;
  for (const ir::Node& node : graph.nodes)
    if (node.op->name == op) made.push_back(&node);
  return made;
}
/// Height and width of what the last convolution makes.
std::pair<int64_t, int64_t> last_size(const ir::Graph& graph) {
  const Shape& shape = graph.type(nodes_of(graph, "global_avg_pool").back()->inputs[0]).shape;
  return {shape[1], shape[2]};
}
int64_t num_residuals(const ir::Graph& graph) { return std::ssize(nodes_of(graph, "add")); }

struct PublishedMobile {
  const char* name;
  int64_t num_weights;
  int64_t num_residuals;
  size_t num_squeezes;
};
constexpr PublishedMobile kPublishedMobile[] = {{"mobilenet_v3_small", 2542856, 6, 9},
                                                {"mobilenet_v3_large", 5483032, 10, 8},
                                                {"efficientnet_b0", 5288548, 9, 16}};

TEST(Mobile, ModelsHaveTheWeightsOfTorchvision) {
  for (const int64_t size : {32, 224}) {
    for (const PublishedMobile& model : kPublishedMobile) {
      const GrownMobile grown = grow_mobile(model.name, {.num_classes = 1000, .image_size = size});
      EXPECT_EQ(grown.num_weights, model.num_weights) << model.name;
      EXPECT_EQ(num_residuals(grown.graph), model.num_residuals) << model.name << size;
      EXPECT_EQ(nodes_of(grown.graph, "scale_channels").size(), model.num_squeezes) << model.name;
    }
  }
}

TEST(Mobile, TensorsHaveTheNamesAndShapesOfTorchvision) {
  const auto small = grow_mobile("mobilenet_v3_small", {.num_classes = 1000, .image_size = 64}).files;
  EXPECT_EQ(small.at("features.0.0.weight"), (Shape{16, 3, 3, 3}));
  EXPECT_EQ(small.at("features.0.1.running_var"), (Shape{16}));
  EXPECT_EQ(small.at("features.1.block.0.0.weight"), (Shape{16, 1, 3, 3}));  // nothing to widen
  EXPECT_EQ(small.at("features.1.block.1.fc1.weight"), (Shape{8, 16, 1, 1}));
  EXPECT_EQ(small.at("features.1.block.2.0.weight"), (Shape{16, 16, 1, 1}));
  EXPECT_EQ(small.at("features.4.block.1.0.weight"), (Shape{96, 1, 5, 5}));
  EXPECT_EQ(small.at("features.4.block.2.fc2.bias"), (Shape{96}));
  EXPECT_EQ(small.at("features.11.block.3.1.bias"), (Shape{96}));
  EXPECT_EQ(small.at("features.12.0.weight"), (Shape{576, 96, 1, 1}));
  EXPECT_EQ(small.at("classifier.0.weight"), (Shape{1024, 576}));
  EXPECT_EQ(small.at("classifier.3.bias"), (Shape{1000}));
  const auto large = grow_mobile("mobilenet_v3_large", {.num_classes = 1000, .image_size = 64}).files;
  EXPECT_EQ(large.at("features.13.block.2.fc1.weight"), (Shape{168, 672, 1, 1}));
  EXPECT_EQ(large.at("features.16.1.running_mean"), (Shape{960}));
  EXPECT_EQ(large.at("classifier.0.bias"), (Shape{1280}));
  const auto efficient = grow_mobile("efficientnet_b0", {.num_classes = 1000, .image_size = 64}).files;
  EXPECT_EQ(efficient.at("features.1.0.block.0.0.weight"), (Shape{32, 1, 3, 3}));
  EXPECT_EQ(efficient.at("features.1.0.block.1.fc1.weight"), (Shape{8, 32, 1, 1}));
  EXPECT_EQ(efficient.at("features.2.1.block.2.fc2.weight"), (Shape{144, 6, 1, 1}));
  EXPECT_EQ(efficient.at("features.6.3.block.3.0.weight"), (Shape{192, 1152, 1, 1}));
  EXPECT_EQ(efficient.at("features.8.0.weight"), (Shape{1280, 320, 1, 1}));
  EXPECT_EQ(efficient.at("classifier.1.weight"), (Shape{1000, 1280}));
}

TEST(Mobile, NormsHaveTheNumbersOfTorchvision) {
  for (const auto& [model, eps, momentum] :
       {std::tuple("mobilenet_v3_large", 1e-3, 0.01), {"efficientnet_b0", 1e-5, 0.1}}) {
    const GrownMobile grown = grow_mobile(model, {.image_size = 64});
    for (const ir::Node* node : nodes_of(grown.graph, "batch_norm")) {
      EXPECT_EQ(node->attrs.real("eps"), eps) << model;
      EXPECT_EQ(node->attrs.real("momentum"), momentum) << model;
    }
  }
}

TEST(Mobile, WeightsStartAsInTorchvision) {
  const auto inits = grow_mobile("mobilenet_v3_small", {.image_size = 64}).inits;
  const nn::Init depthwise = inits.at("features.2.block.1.0.weight");
  EXPECT_EQ(depthwise.kind, nn::Init::Kind::normal);
  EXPECT_DOUBLE_EQ(depthwise.scale, std::sqrt(2.0 / (72 * 9)));
  EXPECT_EQ(inits.at("features.4.block.2.fc1.bias").scale, 0);
  EXPECT_EQ(inits.at("classifier.0.weight").scale, 0.01);
  EXPECT_EQ(inits.at("classifier.3.bias").scale, 0);
}

TEST(Mobile, DropoutIsTheModels) {
  for (const PublishedMobile& model : kPublishedMobile) {
    const GrownMobile trained = grow_mobile(model.name, {.image_size = 64});
    const auto dropouts = nodes_of(trained.graph, "dropout");
    ASSERT_EQ(dropouts.size(), 1U) << model.name;
    EXPECT_EQ(dropouts[0]->attrs.real("rate"), 0.2) << model.name;
    EXPECT_TRUE(nodes_of(grow_mobile(model.name, {.image_size = 64, .dropout = 0}).graph, "dropout").empty());
  }
}

TEST(Mobile, SmallImagesAreHalvedThreeTimes) {
  for (const PublishedMobile& model : kPublishedMobile) {
    EXPECT_THAT(last_size(grow_mobile(model.name, {.image_size = {64, 96}}).graph), Pair(2, 3));
    EXPECT_THAT(last_size(grow_mobile(model.name, {.image_size = {32, 96}}).graph), Pair(4, 12));
  }
}

TEST(Mobile, AWidthScalesAllChannelsToMultiplesOfEight) {
  const auto fewer = grow_mobile("mobilenet_v3_small", {.image_size = 64, .width = 12}).files;
  EXPECT_EQ(fewer.at("features.0.0.weight"), (Shape{16, 3, 3, 3}));
  EXPECT_EQ(fewer.at("features.2.block.0.0.weight"), (Shape{56, 16, 1, 1}));
  EXPECT_EQ(fewer.at("features.2.block.2.0.weight"), (Shape{24, 56, 1, 1}));  // 18, of which 16 lose a tenth
  EXPECT_EQ(fewer.at("classifier.0.weight"), (Shape{768, 432}));
  const auto twice = grow_mobile("efficientnet_b0", {.image_size = 64, .width = 64}).files;
  EXPECT_EQ(twice.at("features.2.0.block.0.0.weight"), (Shape{192, 32, 1, 1}));
  EXPECT_EQ(twice.at("features.8.0.weight"), (Shape{2560, 640, 1, 1}));
}

}  // namespace
}  // namespace hearth::models
