#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

extern const ir::OpDef reshape;
extern const ir::OpDef transpose;
extern const ir::OpDef slice_last;
extern const ir::OpDef pad_last;
/// Kernels for GPUs.
ir::Kernel transpose_gpu(const ir::NodeView& node);
ir::Kernel slice_last_gpu(const ir::NodeView& node);
ir::Kernel pad_last_gpu(const ir::NodeView& node);

}  // namespace hearth::ops
