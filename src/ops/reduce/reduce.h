#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

extern const ir::OpDef sum_leading;
extern const ir::OpDef sum_all;
extern const ir::OpDef sum_squares;
/// Kernels for cards.
ir::Kernel sum_leading_gpu(const ir::NodeView& node);
ir::Kernel sum_all_gpu(const ir::NodeView& node);
ir::Kernel sum_squares_gpu(const ir::NodeView& node);

}  // namespace hearth::ops
