#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/extent.h"
#include "nn/module.h"

namespace hearth::models {

/// What a classifier is built from. Images are NHWC f32 in the input "images".
struct ModelOptions {
  std::string name = "simplecnn";
  int64_t num_classes = 10;
  int64_t channels = 3;
  Extent image_size = 32;
  /// Width of the hidden layers of `mlp`.
  std::vector<int64_t> hidden = {512, 256};
  double dropout = 0.2;
  /// Channels of a ResNet's stem and of its first stage, before a bottleneck widens them.
  int64_t width = 64;
};

/// A model: its name, what it is, and how it grows from images [N, H, W, C] to logits [N, classes].
struct ModelDef {
  std::string_view name;
  std::string_view doc;
  ir::ValueId (*build)(nn::Builder& builder, ir::ValueId images, const ModelOptions& options);
};

/// Every built-in model. To add one: src/models/<name>/<name>.cpp with its build function, and its row in
/// model.cpp.
std::span<const ModelDef> model_list();

/// The model with that name; UserError with the nearest name otherwise.
const ModelDef& find_model(std::string_view name);

}  // namespace hearth::models
