#pragma once

#include <cstddef>

#include "base/threads.h"
#include "ops/conv/conv_spec.h"

namespace hearth::cpu {

/// A 3x3 convolution with stride 1 by Winograd F(4x4,3x3); the padding must be a multiple of the dilation.
/// Tiles are transformed, multiplied at 36 positions for one panel of output channels at a time, and
/// transformed back while they are in the cache.
struct WinogradForward {
  int64_t batch, in_h, in_w, in_c, out_h, out_w, out_c;
  int64_t dilation, padding;  ///< padding in units of the dilation
  DType x, w;
  /// True to use w rotated by 180 degrees with in and out channels exchanged, which computes the gradient of
  /// the input.
  bool adjoint;
  bool relu;
  int num_threads;

  int64_t workspace_bytes() const;
  void run(const void* in, const void* w, const float* bias, const void* residual, void* out,
           std::byte* workspace, ThreadPool& threads) const;
};

/// Weight gradient of such a 3x3 convolution. The order of the sums over tiles does not depend on the number
/// of threads.
struct WinogradBackwardWeights {
  ConvShape shape;
  DType x;
  int num_threads;

  int64_t workspace_bytes() const;
  void run(const void* in, const void* dy, float* dw, std::byte* workspace, ThreadPool& threads) const;
};

}  // namespace hearth::cpu
