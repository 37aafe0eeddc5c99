#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

extern const ir::OpDef reshape;
extern const ir::OpDef transpose;
extern const ir::OpDef slice_last;
extern const ir::OpDef pad_last;
extern const ir::OpDef concat_last;

}  // namespace hearth::ops
