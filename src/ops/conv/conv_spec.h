#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace hearth::cpu {

/// A 2-D convolution over NHWC images with HWIO weights, equal stride and zero padding on both axes.
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
  int64_t out_h() const { return (in_h + 2 * padding - kernel_h) / stride + 1; }
  int64_t out_w() const { return (in_w + 2 * padding - kernel_w) / stride + 1; }
};

/// direct: sums in the order of the definition. winograd: F(4x4,3x3) of Lavin and Gray (CVPR 2016), fewer
/// multiplications, rms error 3 to 4 times direct's.
enum class ConvAlgorithm : uint8_t { direct, winograd };

struct ConvSpec {
  ConvShape shape;
  DType x = DType::f32;  ///< activations: x, y, residual and their gradients
  DType w = DType::f32;
  bool bias = false;
  bool residual = false;
  bool relu = false;
  int num_threads = 1;
  ConvAlgorithm algorithm = ConvAlgorithm::direct;
};

}  // namespace hearth::cpu
