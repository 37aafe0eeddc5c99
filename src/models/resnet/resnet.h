#pragma once

#include <array>

#include "models/model.h"

namespace hearth::models {

/// The body of a ResNet (He et al. 2015, arXiv 1512.03385) without its classifier, in torchvision's names.
struct ResNet {
  std::array<int, 4> blocks;  ///< of each stage
  bool bottleneck = false;
  int64_t width = 64;  ///< channels of the stem and of the first stage, before a bottleneck widens them
  /// How many of the last stages keep their size and dilate their convolutions instead (DeepLab).
  int num_dilated = 0;
  bool small_stem = true;  ///< a 3x3 stem without max-pool for images below 64 pixels
  /// Batch norms keep the statistics, weights and biases that they have, as torchvision's FrozenBatchNorm2d.
  bool frozen_norm = false;
};
inline constexpr ResNet kResNet18{.blocks = {2, 2, 2, 2}};
inline constexpr ResNet kResNet34{.blocks = {3, 4, 6, 3}};
inline constexpr ResNet kResNet50{.blocks = {3, 4, 6, 3}, .bottleneck = true};

/// What it makes on its way.
struct ResNetFeatures {
  ir::ValueId stem = ir::kNone;  ///< before the max-pool; half the size from 64 pixels on
  std::array<ir::ValueId, 4> stages = {};
};
ResNetFeatures resnet_features(nn::Builder& builder, ir::ValueId images, const ResNet& net);

}  // namespace hearth::models
