#include "hub/image_weights.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/error.h"
#include "hub/weights.h"
#include "io/safetensors.h"
#include "run/from_recipe.h"
#include "temporary_folder.h"
#include "torch_writer.h"

namespace hearth::hub {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ImageWeights : public testing::Test {
 protected:
  /// With the weights that its seed draws, or, for `trained`, others.
  static std::unique_ptr<engine::Engine> engine(const std::string& model, int64_t classes, int64_t size,
                                                int64_t seed = 1) {
    const std::string yaml = fmt::format(
        "model: {{name: {}, num_classes: {}, width: 4, hidden: [6]}}\n"
        "data: {{kind: shapes, image_size: {}}}\nseed: {}\nthreads: 1\n",
        model, classes, size, seed);
    const int64_t one[] = {1}, two[] = {2};
    // Heads that help in training have weights too.
    auto made = std::make_unique<engine::Engine>(
        run::engine_options(tasks::Job(run::parse_recipe(yaml, "test"))), two, one);
    made->initialize();
    return made;
  }
  fs::path save(const engine::Engine& engine) const {
    const fs::path path = folder_.path() / "weights.safetensors";
    save_weights(engine, path, false);
    return path;
  }
  static std::vector<float> tensor(const engine::Engine& engine, const std::string& name) {
    const auto values = engine::values(engine, name);
    return {values.begin(), values.end()};
  }
  static std::string refusal(engine::Engine& engine, const fs::path& path) {
    try {
      load_image_weights(engine, path);
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing";
  }
  /// The file with some tensors left out.
  void leave_out(const fs::path& path, std::string_view part) const {
    std::vector<io::TensorView> kept;
    const io::SafetensorsFile file(path);
    for (const io::TensorView& view : file.tensors())
      if (view.name.find(part) == view.name.npos) kept.push_back(view);
    io::write_safetensors(folder_.path() / "fewer.safetensors", kept);
    fs::rename(folder_.path() / "fewer.safetensors", path);
  }

  TemporaryFolder folder_;
};

TEST_F(ImageWeights, OfTheSameModelAreReadWhole) {
  const auto from = engine("smallcnn", 5, 16), to = engine("smallcnn", 5, 16, 2);
  EXPECT_NE(tensor(*from, "fc.weight"), tensor(*to, "fc.weight"));
  EXPECT_THAT(load_image_weights(*to, save(*from)), IsEmpty());
  for (const nn::Tensor& each : from->plan().tensors)
    EXPECT_EQ(tensor(*to, each.name), tensor(*from, each.name)) << each.name;
}

TEST_F(ImageWeights, OfOtherClassesLeaveTheLastLayerDrawn) {
  const auto from = engine("resnet18", 7, 32), to = engine("resnet18", 5, 32, 2);
  const std::vector<float> drawn = tensor(*to, "fc.weight"), bias = tensor(*to, "fc.bias");
  EXPECT_THAT(
      load_image_weights(*to, save(*from)),
      ElementsAre("init: fc.weight [7, 32] is not [5, 32], fc.bias [7] is not [5]: initialized randomly"));
  EXPECT_EQ(tensor(*to, "fc.weight"), drawn);
  EXPECT_EQ(tensor(*to, "fc.bias"), bias);
  EXPECT_EQ(tensor(*to, "layer4.1.conv2.weight"), tensor(*from, "layer4.1.conv2.weight"));
}

TEST_F(ImageWeights, OfMobileModelsServeImagesOfAnySize) {
  for (const auto& [model, last] :
       {std::pair("mobilenet_v3_small", "classifier.3"), std::pair("efficientnet_b0", "classifier.1")}) {
    const auto from = engine(model, 7, 64), to = engine(model, 5, 32, 2);
    const std::vector<std::string> notes = load_image_weights(*to, save(*from));
    ASSERT_EQ(notes.size(), 1U) << model;
    EXPECT_THAT(notes[0],
                AllOf(HasSubstr(std::string(last) + ".weight"), HasSubstr(": initialized randomly")));
    for (const nn::Tensor& each : from->plan().tensors) {
      if (each.name.starts_with(last)) continue;
      EXPECT_EQ(tensor(*to, each.name), tensor(*from, each.name)) << each.name;
    }
  }
}

TEST_F(ImageWeights, OfAnImageNetModelStartAnEncoder) {
  for (const auto& [small, large, prefix] : {std::tuple("resnet18", "unet_resnet18", "encoder."),
                                             std::tuple("resnet34", "unet_resnet34", "encoder."),
                                             std::tuple("resnet50", "deeplabv3_resnet50", "backbone."),
                                             std::tuple("resnet50", "fcn_resnet50", "backbone.")}) {
    const auto from = engine(small, 9, 64), to = engine(large, 3, 64, 2);
    const std::vector<std::string> notes = load_image_weights(*to, save(*from));
    ASSERT_EQ(notes.size(), 2U) << large;
    EXPECT_THAT(notes[0], AllOf(HasSubstr("is missing"), HasSubstr("more: initialized randomly")));
    EXPECT_THAT(notes[1], AllOf(HasSubstr("fc.bias, fc.weight in "), HasSubstr("are not part of the model")));
    for (const nn::Tensor& each : from->plan().tensors) {
      if (each.name.starts_with("fc.")) continue;
      EXPECT_EQ(tensor(*to, prefix + each.name), tensor(*from, each.name)) << each.name;
    }
  }
}

TEST_F(ImageWeights, OfADetectorTakeOtherClasses) {
  const auto from = engine("yolox_nano", 7, 64), to = engine("yolox_nano", 5, 64, 2);
  const std::vector<float> drawn = tensor(*to, "head.cls_preds.0.weight");
  const std::vector<std::string> notes = load_image_weights(*to, save(*from));
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_THAT(notes[0], AllOf(HasSubstr("head.cls_preds.0.weight [7, 64, 1, 1] is not [5, 64, 1, 1]"),
                              HasSubstr("and 3 more: initialized randomly")));
  EXPECT_EQ(tensor(*to, "head.cls_preds.0.weight"), drawn);
  EXPECT_EQ(tensor(*to, "head.reg_preds.2.weight"), tensor(*from, "head.reg_preds.2.weight"));
}

TEST_F(ImageWeights, OfYolosOwnCheckpointsAreTurnedToRgb) {
  const auto from = engine("yolox_nano", 5, 64), to = engine("yolox_nano", 5, 64, 2);
  const fs::path path = folder_.path() / "yolox.pth";
  const io::SafetensorsFile file(save(*from));
  write_file_atomically(path, torch_writer::checkpoint(file.tensors(), "model."));
  EXPECT_THAT(load_image_weights(*to, path),
              ElementsAre(AllOf(HasSubstr("trained on BGR images"), HasSubstr("RGB"))));
  const std::string stem = "backbone.backbone.stem.conv.conv.weight";
  save_weights(*to, folder_.path() / "loaded.safetensors", false);
  const io::SafetensorsFile loaded(folder_.path() / "loaded.safetensors");
  const std::vector<float> before = floats_of(*file.find(stem)), after = floats_of(*loaded.find(stem));
  ASSERT_EQ(before.size(), after.size());
  // [filter, 4 pixels x 3 channels, 3, 3].
  for (size_t i = 0; i < before.size(); ++i) {
    const size_t channel = i / 9 % 3;
    EXPECT_EQ(after[i], before[i + 18 - 18 * channel]) << i;
  }
  EXPECT_EQ(tensor(*to, "head.stems.0.conv.weight"), tensor(*from, "head.stems.0.conv.weight"));
}

TEST_F(ImageWeights, AModuleIsReadWholeOrNotAtAll) {
  const auto from = engine("smallcnn", 5, 16), to = engine("smallcnn", 5, 16, 2);
  const fs::path path = save(*from);
  leave_out(path, "fc.weight");
  const std::vector<float> bias = tensor(*to, "fc.bias");
  EXPECT_THAT(load_image_weights(*to, path), ElementsAre("init: fc.weight is missing: initialized randomly"));
  EXPECT_EQ(tensor(*to, "fc.bias"), bias);
}

TEST_F(ImageWeights, ThatLackTheBackboneAreRefused) {
  const auto from = engine("resnet18", 5, 32);
  const fs::path path = save(*from);
  auto mlp = engine("mlp", 5, 32);
  EXPECT_THAT(refusal(*mlp, path), AllOf(HasSubstr("'fc1.weight' of the model's backbone"),
                                         HasSubstr("weights of the same model")));
  leave_out(path, "layer3.1.bn2.running_var");
  auto same = engine("resnet18", 5, 32, 2);
  const std::vector<float> before = tensor(*same, "conv1.weight");
  EXPECT_THAT(refusal(*same, path), HasSubstr("'layer3.1.bn2.running_var'"));
  EXPECT_EQ(tensor(*same, "conv1.weight"), before);
}

TEST_F(ImageWeights, OfAnotherStemAreRefusedWithWhatToDo) {
  const auto large = engine("resnet18", 5, 64), small = engine("resnet18", 5, 32);
  EXPECT_THAT(refusal(*small, save(*large)),
              AllOf(HasSubstr("'conv1.weight' with shape [4, 3, 3, 3], found shape [4, 3, 7, 7]"),
                    HasSubstr("data.image_size=64")));
  EXPECT_THAT(refusal(*large, save(*small)), HasSubstr("data.image_size=32"));
}

}  // namespace
}  // namespace hearth::hub
