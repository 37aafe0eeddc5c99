#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Square windows over NHWC images. `argmax` is the index ky * kernel + kx of the first largest element of
/// each window; padding never wins.
extern const ir::OpDef max_pool2d;
extern const ir::OpDef max_pool2d_grad;
extern const ir::OpDef global_avg_pool;
extern const ir::OpDef global_avg_pool_grad;
/// Each image's channels times a factor of their own, as squeeze-and-excitation has it, and the factors'
/// gradient.
extern const ir::OpDef scale_channels;
extern const ir::OpDef channel_dot;
/// Images of another height and width, as torch's interpolate makes them without aligned corners.
extern const ir::OpDef resize;
extern const ir::OpDef resize_grad;

}  // namespace hearth::ops
