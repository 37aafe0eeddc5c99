#pragma once

#include <string_view>

#include "nn/module.h"

namespace hearth::models {

/// A number of channels as the nearest multiple of 8, at least 8 and at least nine tenths of what was asked.
int64_t divisible(double channels);

/// Convolution without bias, batch norm and an activation under the names 0 and 1 of `name`.
struct ConvNorm {
  std::string_view activation;  ///< an op's name; empty: none
  nn::Builder::BatchNorm norm = {};

  ir::ValueId operator()(nn::Builder& builder, std::string_view name, ir::ValueId in,
                         nn::Builder::Conv conv) const;
};

/// Inverted residual with a linear bottleneck (Sandler et al. 2018, arXiv 1801.04381): 1x1 to more channels,
/// depthwise convolution, squeeze-and-excitation (Hu et al. 2017, arXiv 1709.01507), 1x1 to few channels. In
/// torchvision's names under `block`.
struct InvertedResidual {
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t wide = 0;  ///< channels between; those of the input: without the first convolution
  int64_t out = 0;
  int64_t squeezed = 0;  ///< channels within squeeze-and-excitation; 0: there is none
  std::string_view activation;
  std::string_view squeeze_activation, gate;
  nn::Builder::BatchNorm norm = {};
  bool adds_input = false;

  ir::ValueId operator()(nn::Builder& builder, ir::ValueId in) const;
};

/// Strides one after the other. For images below 64 pixels the first two of 2 become 1, so that a network
/// that halves the size five times does so three times, as a ResNet with its small stem; no weight changes.
class Strides {
 public:
  Strides(nn::Builder& builder, ir::ValueId images);
  int64_t next(int64_t stride);

 private:
  int left_out_;  ///< how many more
};

}  // namespace hearth::models
