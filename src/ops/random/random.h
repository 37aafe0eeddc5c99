#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

extern const ir::OpDef dropout;
/// Its kernel for GPUs.
ir::Kernel dropout_gpu(const ir::NodeView& node);

}  // namespace hearth::ops
