#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace hearth::cpu {

/// Shape of a 2-D convolution over NHWC images with weights [kernel_h, kernel_w, in_c / groups, out_c].
/// Stride, zero padding and dilation apply to both axes. Output channels depend only on the input channels of
/// their group.
struct ConvShape {
  int64_t batch = 0;
  int64_t in_h = 0;
  int64_t in_w = 0;
  int64_t in_c = 0;
  int64_t out_c = 0;
  int64_t kernel_h = 3;
  int64_t kernel_w = 3;
  int64_t stride = 1;
  int64_t padding = 1;
  int64_t dilation = 1;
  int64_t groups = 1;
  /// Height and width of the dilated kernel in pixels.
  int64_t span_h() const { return dilation * (kernel_h - 1) + 1; }
  int64_t span_w() const { return dilation * (kernel_w - 1) + 1; }
  int64_t out_h() const { return (in_h + 2 * padding - span_h()) / stride + 1; }
  int64_t out_w() const { return (in_w + 2 * padding - span_w()) / stride + 1; }
  int64_t group_in() const { return in_c / groups; }
  int64_t group_out() const { return out_c / groups; }
  /// True if each input channel is a separate group.
  bool is_depthwise() const { return groups > 1 && groups == in_c; }
};

/// Convolution algorithm. direct: im2col (direct_cpu.h). winograd: F(4x4,3x3) of Lavin and Gray (CVPR 2016),
/// with fewer multiplications and 3 to 4 times the root-mean-square error of direct.
enum class ConvAlgorithm : uint8_t { direct, winograd };

/// A convolution with its dtypes, fused epilogue, number of threads and algorithm.
struct ConvSpec {
  ConvShape shape;
  DType x = DType::f32;  ///< dtype of the activations: x, y, residual and their gradients
  DType w = DType::f32;
  bool bias = false;
  bool residual = false;
  bool relu = false;
  int num_threads = 1;
  ConvAlgorithm algorithm = ConvAlgorithm::direct;
};

}  // namespace hearth::cpu
