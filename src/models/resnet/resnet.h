#pragma once

#include <array>

#include "models/model.h"

namespace hearth::models {

/// Backbone of a ResNet (He et al. 2015, arXiv 1512.03385) without its classifier, with torchvision's names.
struct ResNet {
  std::array<int, 4> blocks;  ///< number of blocks of each stage
  bool bottleneck = false;
  int64_t width = 64;  ///< channels of the stem and of the first stage, before the bottleneck's expansion
  /// Number of last stages that use dilated convolutions instead of halving height and width (DeepLab).
  int num_dilated = 0;
  bool small_stem = true;  ///< true: images below 64 pixels get a 3x3 stem without max-pool
  /// True if statistics, weights and biases of batch norms are constant, like torchvision's
  /// FrozenBatchNorm2d.
  bool frozen_norm = false;
};
inline constexpr ResNet kResNet18{.blocks = {2, 2, 2, 2}};
inline constexpr ResNet kResNet34{.blocks = {3, 4, 6, 3}};
inline constexpr ResNet kResNet50{.blocks = {3, 4, 6, 3}, .bottleneck = true};

/// Intermediate outputs of a ResNet.
struct ResNetFeatures {
  /// Output of the stem before the max-pool, at half the image size (full size with a small stem).
  ir::ValueId stem = ir::kNone;
  std::array<ir::ValueId, 4> stages = {};
};
/// Builds the backbone on images [N, H, W, C].
ResNetFeatures resnet_features(nn::Builder& builder, ir::ValueId images, const ResNet& net);

}  // namespace hearth::models
