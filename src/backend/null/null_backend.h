#pragma once

#include "ir/op_def.h"

namespace hearth::null_backend {

/// Returns a kernel that touches no memory. With it, passes, plans and programs run on any machine, for any
/// size.
ir::Kernel prepare(const ir::OpDef& op, const ir::NodeView& node);

}  // namespace hearth::null_backend
