#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

extern const ir::OpDef reshape;
extern const ir::OpDef transpose;

}  // namespace hearth::ops
