#include "models/model.h"

#include <array>

#include "base/error.h"
#include "base/text.h"

namespace hearth::models {

// Build functions of the models, each defined in the folder of its model.
using Build = Outputs(nn::Builder& builder, ir::ValueId images, const ModelOptions& options);
Build build_mlp, build_simplecnn, build_smallcnn, build_resnet18, build_resnet34, build_resnet50,
    build_mobilenet_v3_small, build_mobilenet_v3_large, build_efficientnet_b0, build_unet,
    build_unet_resnet18, build_unet_resnet34, build_unet_resnet50, build_fcn_resnet50,
    build_deeplabv3_resnet50;

namespace {

constexpr auto kModels = std::to_array<ModelDef>({
    {"mlp", "linear layers with batch norm, relu and dropout; 784-512-256-10 for MNIST", Purpose::classify,
     build_mlp},
    {"simplecnn", "conv 3x3 to 16 channels, relu, max-pool, linear", Purpose::classify, build_simplecnn},
    {"smallcnn", "four 3x3 convolutions with batch norm, two max-pools, global average, linear",
     Purpose::classify, build_smallcnn},
    {"resnet18",
     "ResNet-18 (arXiv 1512.03385); 3x3 stem, from 64 pixels on 7x7 and max-pool as in torchvision",
     Purpose::classify, build_resnet18},
    {"resnet34", "ResNet-34, stem as resnet18", Purpose::classify, build_resnet34},
    {"resnet50", "ResNet-50 with bottlenecks, stem as resnet18", Purpose::classify, build_resnet50},
    {"mobilenet_v3_small", "MobileNetV3-small (arXiv 1905.02244), 2.5 M weights, torchvision's",
     Purpose::classify, build_mobilenet_v3_small},
    {"mobilenet_v3_large", "MobileNetV3-large, 5.5 M weights, torchvision's", Purpose::classify,
     build_mobilenet_v3_large},
    {"efficientnet_b0",
     "EfficientNet-B0 (arXiv 1905.11946), 5.3 M weights, torchvision's without stochastic depth",
     Purpose::classify, build_efficientnet_b0},
    {"unet", "segmentation: U-Net (arXiv 1505.04597) with batch norm, model.width channels at first",
     Purpose::segment, build_unet},
    {"unet_resnet18", "segmentation: U-Net whose encoder is ResNet-18", Purpose::segment,
     build_unet_resnet18},
    {"unet_resnet34", "segmentation: U-Net whose encoder is ResNet-34", Purpose::segment,
     build_unet_resnet34},
    {"unet_resnet50", "segmentation: U-Net whose encoder is ResNet-50", Purpose::segment,
     build_unet_resnet50},
    {"fcn_resnet50", "segmentation: FCN (arXiv 1411.4038) on ResNet-50, as torchvision's", Purpose::segment,
     build_fcn_resnet50},
    {"deeplabv3_resnet50", "segmentation: DeepLabV3 (arXiv 1706.05587) on ResNet-50, as torchvision's",
     Purpose::segment, build_deeplabv3_resnet50},
});

}  // namespace

std::span<const ModelDef> model_list() { return kModels; }

const ModelDef& find_model(std::string_view name) {
  std::vector<std::string> names;
  for (const ModelDef& model : kModels) {
    if (model.name == name) return model;
    names.emplace_back(model.name);
  }
  user_error("there is no model '{}'{}", name, did_you_mean(name, names));
}

}  // namespace hearth::models
