#pragma once

#include <array>
#include <span>

#include "nn/module.h"

namespace hearth::models {

/// Number of pyramid levels, P3 to P7, finest first. Each level has about half the height and width of the
/// previous one.
inline constexpr size_t kNumPyramidLevels = 5;
using Pyramid = std::array<ir::ValueId, kNumPyramidLevels>;

/// Options of a detector's backbone: ResNet-50 with a feature pyramid, with the names of torchvision's
/// detectors.
struct PyramidOptions {
  int64_t width = 64;  ///< channels of the ResNet's stem; pyramid levels have four times as many
  /// True if batch norms are not trained (ResNet::frozen_norm).
  bool frozen_norm = false;
};

/// ResNet-50 with a feature pyramid (FPN, Lin et al. 2016, arXiv 1612.03144) on images [N, H, W, 3]; P6 and
/// P7 are computed from P5. Throws a UserError for image sides not divisible by 32.
Pyramid build_resnet50_fpn(nn::Builder& builder, ir::ValueId images, const PyramidOptions& options);

/// Returns the standard deviation of a head's initial weights: 0.01 for 256 channels, larger for fewer, so
/// that the output variance stays the same.
double head_deviation(int64_t channels);
/// Returns the initial bias of class logits: a prior probability of 0.01 (focal loss).
double rare_class_bias();

/// Adds the final 3x3 convolution of a head, initialized with small weights; returns [N, H, W, channels].
ir::ValueId predict(nn::Builder& builder, std::string_view name, ir::ValueId in, int64_t channels,
                    double bias = 0);
/// Concatenates the predictions of all levels, [N, H, W, K * values] each, to [N, anchors, values] in f32;
/// the K anchors of a cell are adjacent.
ir::ValueId join_levels(nn::Builder& builder, std::span<const ir::ValueId> levels, int64_t values);

}  // namespace hearth::models
