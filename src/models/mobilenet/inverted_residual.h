#pragma once

#include <string_view>

#include "nn/module.h"

namespace hearth::models {

/// Rounds a number of channels to the nearest multiple of 8 that is at least 8 and at least 0.9 * channels.
int64_t round_channels(double channels);

/// Builds a convolution without bias (named "0" below `name`), a batch norm ("1") and an activation.
struct ConvNorm {
  std::string_view activation;  ///< name of the activation's op; empty: none
  nn::Builder::BatchNorm norm = {};

  ir::ValueId operator()(nn::Builder& builder, std::string_view name, ir::ValueId in,
                         nn::Builder::Conv conv) const;
};

/// Inverted residual with a linear bottleneck (Sandler et al. 2018, arXiv 1801.04381): 1x1 convolution to
/// more channels, depthwise convolution, squeeze-and-excitation (Hu et al. 2017, arXiv 1709.01507), 1x1
/// convolution to few channels. Named as in torchvision, below `block`.
struct InvertedResidual {
  int64_t kernel = 3;
  int64_t stride = 1;
  /// Channels of the depthwise convolution; if equal to the input channels, the first 1x1 convolution is
  /// omitted.
  int64_t wide = 0;
  int64_t out = 0;
  int64_t squeezed = 0;  ///< channels within squeeze-and-excitation; 0: none
  std::string_view activation;
  std::string_view squeeze_activation, gate;
  nn::Builder::BatchNorm norm = {};
  bool adds_input = false;

  ir::ValueId operator()(nn::Builder& builder, ir::ValueId in) const;
};

/// Adapts the strides of consecutive layers to small images: below 64 pixels the first two strides of 2 are
/// replaced by 1, so that the network halves the size three times instead of five, like a ResNet with a small
/// stem. Weight shapes stay the same.
class Strides {
 public:
  Strides(nn::Builder& builder, ir::ValueId images);
  /// Returns the adapted stride of the next layer. `stride`: its stride for large images.
  int64_t next(int64_t stride);

 private:
  int left_out_;  ///< number of strides of 2 still to replace by 1
};

}  // namespace hearth::models
