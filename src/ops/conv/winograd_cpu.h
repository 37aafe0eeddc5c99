#pragma once

#include <cstddef>

#include "base/threads.h"
#include "ops/conv/conv_spec.h"

namespace hearth::cpu {

/// A 3x3, stride-1 correlation by F(4x4,3x3), whose padding is a multiple of its dilation: tiles are
/// transformed, multiplied at 36 positions one panel of output channels at a time, and transformed back while
/// the panel is in the cache.
struct WinogradForward {
  int64_t batch, in_h, in_w, in_c, out_h, out_w, out_c;
  int64_t dilation, padding;  ///< padding in dilations
  DType x, w;
  /// Uses w turned by 180 degrees with in and out channels swapped: the gradient of the input.
  bool adjoint;
  bool relu;
  int num_threads;

  int64_t workspace_bytes() const;
  void run(const void* in, const void* w, const float* bias, const void* residual, void* out,
           std::byte* workspace, ThreadPool& threads) const;
};

/// The weight gradient of the same convolution. Sums run over tiles in one order whatever the number of
/// threads.
struct WinogradBackwardWeights {
  ConvShape shape;
  DType x;
  int num_threads;

  int64_t workspace_bytes() const;
  void run(const void* in, const void* dy, float* dw, std::byte* workspace, ThreadPool& threads) const;
};

}  // namespace hearth::cpu
