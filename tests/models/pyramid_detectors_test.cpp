#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "base/extent.h"
#include "models/fcos/fcos.h"
#include "models/retinanet/retinanet.h"

namespace hearth::models {
namespace {

struct GrownPyramid {
  ir::Graph graph;
  std::map<std::string, Shape> files;  ///< of weights and statistics, as files hold them
  int64_t num_weights = 0;             ///< that train
  Shape logits, boxes;
};
GrownPyramid grow_pyramid(bool fcos, Extent size, const PyramidOptions& options, int64_t classes) {
  GrownPyramid made;
  nn::Builder builder(made.graph, nn::Builder::Mode::train, 1);
  const ir::ValueId images =
      builder.input("images", {.dtype = DType::f32, .shape = {2, size.height, size.width, 3}});
  const auto shape_of = [&](ir::ValueId value) { return made.graph.type(value).shape; };
  if (fcos) {
    const FcosOutputs out = build_fcos(builder, images, options, classes);
    made.logits = shape_of(out.logits);
    made.boxes = shape_of(out.edges);
  } else {
    const RetinanetOutputs out = build_retinanet(builder, images, options, classes);
    made.logits = shape_of(out.logits);
    made.boxes = shape_of(out.boxes);
  }
  for (const nn::Tensor& tensor : builder.tensors()) {
    EXPECT_TRUE(made.files.emplace(tensor.name, tensor.layout.file_shape).second) << tensor.name;
    if (tensor.trainable) made.num_weights += shape_of(tensor.value).num_elements();
  }
  return made;
}

TEST(Retinanet, HasTheWeightsOfTorchvision) {
  const GrownPyramid made = grow_pyramid(false, 64, {.frozen_norm = true}, 91);
  EXPECT_EQ(made.num_weights, 34014999);
  EXPECT_EQ(made.files.at("backbone.body.layer4.2.conv3.weight"), (Shape{2048, 512, 1, 1}));
  EXPECT_EQ(made.files.at("backbone.fpn.inner_blocks.2.0.weight"), (Shape{256, 2048, 1, 1}));
  EXPECT_EQ(made.files.at("backbone.fpn.extra_blocks.p6.weight"), (Shape{256, 256, 3, 3}));
  EXPECT_EQ(made.files.at("head.classification_head.conv.3.0.bias"), (Shape{256}));
  EXPECT_EQ(made.files.at("head.classification_head.cls_logits.weight"), (Shape{9 * 91, 256, 3, 3}));
  EXPECT_EQ(made.files.at("head.regression_head.bbox_reg.weight"), (Shape{36, 256, 3, 3}));
}

TEST(Fcos, HasTheWeightsOfTorchvision) {
  const GrownPyramid made = grow_pyramid(true, 64, {.frozen_norm = true}, 91);
  EXPECT_EQ(made.num_weights, 32269600);
  EXPECT_EQ(made.files.at("head.classification_head.conv.10.weight"), (Shape{256}));
  EXPECT_EQ(made.files.at("head.regression_head.conv.9.weight"), (Shape{256, 256, 3, 3}));
  EXPECT_EQ(made.files.at("head.regression_head.bbox_ctrness.bias"), (Shape{1}));
}

TEST(PyramidDetectors, EveryCellOfFiveLevelsPredicts) {
  // P6 and P7 round up.
  const int64_t cells = 12 * 20 + 6 * 10 + 3 * 5 + 2 * 3 + 1 * 2;
  const GrownPyramid retinanet = grow_pyramid(false, {96, 160}, {.width = 8}, 3);
  EXPECT_EQ(retinanet.logits, (Shape{2, 9 * cells, 3}));
  EXPECT_EQ(retinanet.boxes, (Shape{2, 9 * cells, 4}));
  EXPECT_EQ(grow_pyramid(true, {96, 160}, {.width = 8}, 3).logits, (Shape{2, cells, 3}));
}

TEST(PyramidDetectors, FrozenNormsDoNotTrain) {
  const int64_t all = grow_pyramid(false, 64, {}, 3).num_weights;
  const int64_t without = grow_pyramid(false, 64, {.frozen_norm = true}, 3).num_weights;
  EXPECT_EQ(all - without, 2 * 26560);  // channels that ResNet-50 normalizes
}

TEST(PyramidDetectors, SizesThatDoNotFitAreRefused) {
  EXPECT_THROW(grow_pyramid(false, {64, 80}, {.width = 8}, 3), UserError);
  EXPECT_THROW(grow_pyramid(true, 64, {.width = 12}, 3), UserError);
}

}  // namespace
}  // namespace hearth::models
