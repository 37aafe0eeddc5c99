#pragma once

#include <array>
#include <span>

#include "nn/module.h"

namespace hearth::models {

/// Levels P3 to P7 of a picture, finest first; each has about half the size of the one before it.
inline constexpr size_t kNumPyramidLevels = 5;
using Pyramid = std::array<ir::ValueId, kNumPyramidLevels>;

/// A detector's body: ResNet-50 with a feature pyramid, in the names of torchvision's detectors.
struct PyramidOptions {
  int64_t width = 64;  ///< channels of the ResNet's stem; the pyramid's levels have four times as many
  /// Batch norms stay as they are (ResNet::frozen_norm).
  bool frozen_norm = false;
};

/// ResNet-50 with a feature pyramid (Lin et al. 2016, arXiv 1612.03144) of pictures [N, H, W, 3], whose P6
/// and P7 are made from P5. UserError for sides that 32 does not divide.
Pyramid build_resnet50_fpn(nn::Builder& builder, ir::ValueId images, const PyramidOptions& options);

/// Deviation of the weights that a head of so many channels starts from: 0.01 for 256, and more for fewer, so
/// that as much comes through.
double head_deviation(int64_t channels);
/// Where the bias of the classes' logits starts: each is there with a probability of 0.01.
double rare_class_bias();

/// A head's last convolution, 3x3: [N, H, W, channels]. It starts from small weights.
ir::ValueId predict(nn::Builder& builder, std::string_view name, ir::ValueId in, int64_t channels,
                    double bias = 0);
/// What all levels predict, [N, H, W, K * values] each, as [N, anchors, values] in f32; a cell's K anchors
/// are neighbors.
ir::ValueId join_levels(nn::Builder& builder, std::span<const ir::ValueId> levels, int64_t values);

}  // namespace hearth::models
