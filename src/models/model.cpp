#include "models/model.h"

#include <array>

#include "base/error.h"
#include "base/text.h"

namespace hearth::models {

// Each in the source of its own folder.
using Build = ir::ValueId(nn::Builder& builder, ir::ValueId images, const ModelOptions& options);
Build build_mlp, build_simplecnn, build_smallcnn, build_resnet18, build_resnet34, build_resnet50;

namespace {

constexpr std::array<ModelDef, 6> kModels = {{
    {"mlp", "linear layers with batch norm, relu and dropout; 784-512-256-10 for MNIST", build_mlp},
    {"simplecnn", "conv 3x3 to 16 channels, relu, max-pool, linear", build_simplecnn},
    {"smallcnn", "four 3x3 convolutions with batch norm, two max-pools, global average, linear",
     build_smallcnn},
    {"resnet18",
     "ResNet-18 (arXiv 1512.03385); 3x3 stem, from 64 pixels on 7x7 and max-pool as in torchvision",
     build_resnet18},
    {"resnet34", "ResNet-34, stem as resnet18", build_resnet34},
    {"resnet50", "ResNet-50 with bottlenecks, stem as resnet18", build_resnet50},
}};

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
