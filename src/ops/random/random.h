#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

extern const ir::OpDef dropout;

}  // namespace hearth::ops
