#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Max pooling over square windows of NHWC images. The second output, argmax u8, is the index ky * kernel +
/// kx of the first maximum in each window; padding is never the maximum.
extern const ir::OpDef max_pool2d;
extern const ir::OpDef max_pool2d_grad;
/// Mean over the pixels of each image: [N, H, W, C] to [N, C].
extern const ir::OpDef global_avg_pool;
extern const ir::OpDef global_avg_pool_grad;
/// Multiplies each channel of each image of x [N, H, W, C] by a factor [N, C], as in squeeze-and-excitation.
/// channel_dot computes the gradient of the factors.
extern const ir::OpDef scale_channels;
extern const ir::OpDef channel_dot;
/// Resizes images to height x width like torch.nn.functional.interpolate: nearest (linear=0) or bilinear
/// (linear=1), the latter optionally with align_corners=1.
extern const ir::OpDef resize;
extern const ir::OpDef resize_grad;

}  // namespace hearth::ops
