#pragma once

#include <string>

#include "ir/op_def.h"
#include "ops/conv/conv_cpu.h"

namespace hearth::ops {

/// Convolutions of NHWC images with weights [kh, kw, in / groups, out], equal stride, zero padding and
/// dilation on both axes. conv2d_pool takes no dilation and no groups.
extern const ir::OpDef conv2d;
extern const ir::OpDef conv2d_grad_input;
extern const ir::OpDef conv2d_grad_weight;
extern const ir::OpDef conv2d_pool;
extern const ir::OpDef conv2d_pool_grad_weight;
/// With what batch normalization after it needs (norm/norm.h): in training the moments of its result, in
/// evaluation all of it.
extern const ir::OpDef conv2d_moments;
extern const ir::OpDef conv2d_norm;
/// The inputs of the records, in their order. conv2d_pool and conv2d_moments have no residual.
struct ConvIn {
  enum : size_t { x, w, bias, residual };
};
struct ConvNormIn {
  enum : size_t { x, w, weight, bias, mean, var, conv_bias, residual };
};
struct ConvPoolGradIn {
  enum : size_t { x, pooled, argmax, dpooled };
};

/// The shape of a convolution of x with w; axes must already have rank 4.
cpu::ConvShape conv_shape(const Shape& x, const Shape& w, const ir::Attrs& attrs);
/// Why such a convolution is refused, or "".
std::string check_conv(const cpu::ConvShape& shape);

/// Calls body(x element, w element, y element) for every product of the convolution, images outside excluded.
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
