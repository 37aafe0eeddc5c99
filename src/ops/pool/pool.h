#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Max pooling over square windows of NHWC images. `argmax` is the index ky * kernel + kx of the first
/// maximum of each window; padding never wins.
extern const ir::OpDef max_pool2d;
extern const ir::OpDef max_pool2d_grad;
/// Mean over the pixels of each image: [N, H, W, C] to [N, C].
extern const ir::OpDef global_avg_pool;
extern const ir::OpDef global_avg_pool_grad;
/// Multiplies each channel of each image by a factor, as in squeeze-and-excitation; channel_dot is the
/// factors' gradient.
extern const ir::OpDef scale_channels;
extern const ir::OpDef channel_dot;
/// Resizes images like torch.nn.functional.interpolate: nearest or (linear=1) bilinear, with align_corners
/// optional.
extern const ir::OpDef resize;
extern const ir::OpDef resize_grad;

}  // namespace hearth::ops
