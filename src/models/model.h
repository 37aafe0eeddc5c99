#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/extent.h"
#include "nn/module.h"

namespace hearth::models {

/// Task of a model: a class per image, or per pixel.
enum class Purpose : uint8_t { classify, segment };

/// True if NHWC images have a side below 64 pixels, too small for a stem designed for 224.
inline bool are_small(const Shape& images) { return std::min(images[1], images[2]) < 64; }

/// Options of a model. Images are the f32 NHWC input "images".
struct ModelOptions {
  std::string name = "simplecnn";
  int64_t num_classes = 10;
  int64_t channels = 3;
  Extent image_size = 32;
  /// Widths of the hidden layers of `mlp`.
  std::vector<int64_t> hidden = {512, 256};
  /// Dropout of `mlp`, MobileNets and EfficientNets. The heads of FCN and DeepLab have fixed dropout rates; 0
  /// disables their dropout too.
  double dropout = 0.2;
  /// Channels of a ResNet's stem or of a plain U-Net's first level; 0: the model's default. Must be a
  /// multiple of 8 for MobileNets and EfficientNets.
  int64_t width = 0;
};

/// Logits per image [N, classes] or per pixel [N, H, W, classes].
struct Outputs {
  ir::ValueId logits = ir::kNone;
  ir::ValueId auxiliary = ir::kNone;  ///< in training, logits of an auxiliary head
};

/// A model: name, description, task and build function for images [N, H, W, C].
struct ModelDef {
  std::string_view name;
  std::string_view doc;
  Purpose purpose = Purpose::classify;
  Outputs (*build)(nn::Builder& builder, ir::ValueId images, const ModelOptions& options);
};

/// Returns all built-in models. A new model needs src/models/<name>/<name>.cpp with its build function, and a
/// row in model.cpp.
std::span<const ModelDef> model_list();

/// Returns the model with that name; throws a UserError with the most similar name if there is none.
const ModelDef& find_model(std::string_view name);

}  // namespace hearth::models
