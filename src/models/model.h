#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/extent.h"
#include "nn/module.h"

namespace hearth::models {

/// What a model is for: a class of an image, or of each of its pixels.
enum class Purpose : uint8_t { classify, segment };

/// Whether images, NHWC, have a side below 64 pixels, of which a stem made for 224 would leave too little.
inline bool are_small(const Shape& images) { return std::min(images[1], images[2]) < 64; }

/// What a model is built from. Images are NHWC f32 in the input "images".
struct ModelOptions {
  std::string name = "simplecnn";
  int64_t num_classes = 10;
  int64_t channels = 3;
  Extent image_size = 32;
  /// Width of the hidden layers of `mlp`.
  std::vector<int64_t> hidden = {512, 256};
  /// Of `mlp`, MobileNets and EfficientNets; the heads of FCN and DeepLab have rates of their own, which 0
  /// switches off.
  double dropout = 0.2;
  /// Channels of a ResNet's stem, or of a plain U-Net's first level; 0: the model's own. Those of a MobileNet
  /// or an EfficientNet are multiples of 8.
  int64_t width = 0;
};

/// Logits of an image [N, classes], or of each of its pixels [N, H, W, classes].
struct Outputs {
  ir::ValueId logits = ir::kNone;
  ir::ValueId auxiliary = ir::kNone;  ///< in training, those of a head whose loss helps the layers before it
};

/// A model: its name, what it is, and how it grows from images [N, H, W, C].
struct ModelDef {
  std::string_view name;
  std::string_view doc;
  Purpose purpose = Purpose::classify;
  Outputs (*build)(nn::Builder& builder, ir::ValueId images, const ModelOptions& options);
};

/// Every built-in model. To add one: src/models/<name>/<name>.cpp with its build function, and its row in
/// model.cpp.
std::span<const ModelDef> model_list();

/// The model with that name; UserError with the nearest name otherwise.
const ModelDef& find_model(std::string_view name);

}  // namespace hearth::models
