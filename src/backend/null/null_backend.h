#pragma once

#include "ir/op_def.h"

namespace hearth::null_backend {

/// A kernel that touches no memory: lets passes, plans and programs run anywhere, for any size.
ir::Kernel prepare(const ir::OpDef& op, const ir::NodeView& node);

}  // namespace hearth::null_backend
