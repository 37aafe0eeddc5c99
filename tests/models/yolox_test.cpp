#include "models/yolox/yolox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace hearth::models {
namespace {

struct Grown {
  ir::Graph graph;
  std::map<std::string, Shape> files;  ///< of weights and statistics, as files hold them
  int64_t num_weights = 0;
  ir::Type predicted;
};
Grown grow(std::string_view size, int64_t height, int64_t width, int64_t classes) {
  Grown made;
  nn::Builder builder(made.graph, nn::Builder::Mode::train, 1);
  const ir::ValueId images = builder.input("images", {.dtype = DType::f32, .shape = {2, height, width, 3}});
  made.predicted = made.graph.type(build_yolox(builder, images, find_yolox(size), classes));
  for (const nn::Tensor& tensor : builder.tensors()) {
    made.files[tensor.name] = tensor.layout.file_shape;
    if (tensor.trainable) made.num_weights += made.graph.type(tensor.value).shape.num_elements();
  }
  return made;
}

TEST(Yolox, SizesHaveTheWeightsOfMegvii) {
  const std::map<std::string_view, int64_t> published = {{"yolox_nano", 912159},
                                                         {"yolox_tiny", 5055855},
                                                         {"yolox_s", 8968255},
                                                         {"yolox_m", 25326495},
                                                         {"yolox_l", 54208895}};
  for (const auto& [size, count] : published) EXPECT_EQ(grow(size, 64, 64, 80).num_weights, count) << size;
}

TEST(Yolox, EveryCellOfThreeStridesPredicts) {
  const ir::Type type = grow("yolox_pico", 64, 96, 3).predicted;
  EXPECT_EQ(type.shape, (Shape{2, 8 * 12 + 4 * 6 + 2 * 3, 8}));
}

TEST(Yolox, TensorsHaveTheNamesAndShapesOfMegvii) {
  const std::map<std::string, Shape> files = grow("yolox_s", 64, 64, 80).files;
  EXPECT_EQ(files.at("backbone.backbone.stem.conv.conv.weight"), (Shape{32, 12, 3, 3}));
  EXPECT_EQ(files.at("backbone.backbone.stem.conv.bn.running_var"), (Shape{32}));
  EXPECT_EQ(files.at("backbone.backbone.dark3.1.m.2.conv2.conv.weight"), (Shape{64, 64, 3, 3}));
  EXPECT_EQ(files.at("backbone.backbone.dark5.1.conv2.conv.weight"), (Shape{512, 1024, 1, 1}));
  EXPECT_EQ(files.at("backbone.C3_n4.conv3.bn.weight"), (Shape{512}));
  EXPECT_EQ(files.at("head.cls_preds.0.weight"), (Shape{80, 128, 1, 1}));
  EXPECT_EQ(files.at("head.obj_preds.2.bias"), (Shape{1}));
}

TEST(Yolox, TheStemsFileHoldsTheFourPixelsOfABlockColumnByColumn) {
  ir::Graph graph;
  nn::Builder builder(graph, nn::Builder::Mode::train, 1);
  const ir::ValueId images = builder.input("images", {.dtype = DType::f32, .shape = {1, 8, 8, 3}});
  builder.conv("stem", images,
               {.out_channels = 2, .kernel = 6, .stride = 2, .padding = 2, .space_to_depth = true});
  std::vector<float> file(2 * 12 * 9), memory(file.size());
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<float>(i);
  nn::from_file_order(builder.tensors()[0].layout, file.data(), memory.data());
  // Output 1, block (2, 1): channel 2 of its upper right pixel, which is (4, 3) of the image.
  const size_t in_file = ((1 * 12 + (2 * 3 + 2)) * 3 + 2) * 3 + 1, in_memory = ((4 * 6 + 3) * 3 + 2) * 2 + 1;
  EXPECT_EQ(memory[in_memory], file[in_file]);
  // And of its lower left one, (5, 2).
  EXPECT_EQ(memory[((5 * 6 + 2) * 3 + 2) * 2 + 1], file[((1 * 12 + (1 * 3 + 2)) * 3 + 2) * 3 + 1]);
}

TEST(Yolox, RefusalsSayWhatWasExpected) {
  EXPECT_THAT([] { grow("yolox_pico", 64, 100, 3); },
              testing::ThrowsMessage<UserError>(
                  testing::HasSubstr("expected images with sides that are multiples of 32, got 64 x 100")));
  EXPECT_THAT([] { find_yolox("yolox_tny"); },
              testing::ThrowsMessage<UserError>(testing::HasSubstr("did you mean 'yolox_tiny'")));
}

}  // namespace
}  // namespace hearth::models
