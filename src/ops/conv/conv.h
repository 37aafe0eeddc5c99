#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ir/op_def.h"
#include "ops/conv/conv_cpu.h"

namespace hearth::ops {

/// 2-D convolutions of NHWC images with weights [kh, kw, in / groups, out]; stride, zero padding and dilation
/// are equal on both axes. conv2d_pool also applies ReLU and 2x2 max pooling; it supports neither dilation
/// nor groups.
extern const ir::OpDef conv2d;
extern const ir::OpDef conv2d_grad_input;
extern const ir::OpDef conv2d_grad_weight;
extern const ir::OpDef conv2d_pool;
extern const ir::OpDef conv2d_pool_grad_weight;
/// Convolutions fused with the following batch normalization (norm/norm.h): conv2d_moments also outputs the
/// moments of its result, for training; conv2d_norm includes the full normalization, for evaluation.
extern const ir::OpDef conv2d_moments;
extern const ir::OpDef conv2d_norm;
/// Indices of the inputs of conv2d, conv2d_pool and conv2d_moments; the latter two have no residual.
struct ConvIn {
  enum : size_t { x, w, bias, residual };
};
/// Index of conv2d_grad_input's optional residual, which is added to dx.
inline constexpr size_t kGradInputResidual = 2;
/// Index of conv2d_grad_input's optional mask (norm/norm.h): dx is 0 where its bit is 0. Needs groups=1.
inline constexpr size_t kGradInputMask = 3;
/// Indices of the inputs of conv2d_norm; `weight`, `bias`, `mean` and `var` belong to the normalization.
struct ConvNormIn {
  enum : size_t { x, w, weight, bias, mean, var, conv_bias, residual };
};
/// Indices of the inputs of conv2d_pool_grad_weight.
struct ConvPoolGradIn {
  enum : size_t { x, pooled, argmax, dpooled };
};

/// Return the test cases of conv2d and its gradients.
std::vector<ir::Sample> conv_samples();
std::vector<ir::Sample> conv_grad_input_samples();
std::vector<ir::Sample> conv_grad_weight_samples();

/// Returns the shape of a convolution of x with w, both of rank 4.
cpu::ConvShape conv_shape(const Shape& x, const Shape& w, const ir::Attrs& attrs);
/// Returns the shape of a convolution's result.
inline Shape out_shape(const cpu::ConvShape& s) { return {s.batch, s.out_h(), s.out_w(), s.out_c}; }
/// Returns the number of splits of the sum over pixels (split-K) in a weight gradient with `tiles` output
/// tiles on a GPU. The target of 252 blocks is divisible by the nine taps of a 3x3 kernel.
inline int64_t num_weight_parts(int64_t tiles, int64_t pixels) {
  constexpr int64_t kBlocks = 252, kMinPixelsPerPart = 256;
  return std::clamp<int64_t>(kBlocks / tiles, 1, (pixels + kMinPixelsPerPart - 1) / kMinPixelsPerPart);
}
/// Returns the bytes of x that a convolution does not read because its stride is larger than its kernel.
double skipped_bytes(const ir::Type& x, const cpu::ConvShape& shape);
/// Returns an error message if this convolution is not supported; empty if it is.
std::string check_conv(const cpu::ConvShape& shape);

/// Calls body(index in x, index in w, index in y) for every product of the convolution, except products with
/// padding.
template <typename Body>
void for_each_product(const cpu::ConvShape& s, Body body) {
  for (int64_t pixel = 0; pixel < s.batch * s.out_h() * s.out_w(); ++pixel) {
    const int64_t ox = pixel % s.out_w(), oy = pixel / s.out_w() % s.out_h();
    const int64_t n = pixel / (s.out_w() * s.out_h());
    for (int64_t tap = 0; tap < s.kernel_h * s.kernel_w; ++tap) {
      const int64_t y = oy * s.stride - s.padding + s.dilation * (tap / s.kernel_w);
      const int64_t x = ox * s.stride - s.padding + s.dilation * (tap % s.kernel_w);
      if (y < 0 || x < 0 || y >= s.in_h || x >= s.in_w) continue;
      for (int64_t i = 0; i < s.group_in() * s.out_c; ++i) {
        const int64_t o = i % s.out_c, c = o / s.group_out() * s.group_in() + i / s.out_c;
        body(static_cast<size_t>(((n * s.in_h + y) * s.in_w + x) * s.in_c + c),
             static_cast<size_t>(tap * s.group_in() * s.out_c + i), static_cast<size_t>(pixel * s.out_c + o));
      }
    }
  }
}

}  // namespace hearth::ops
