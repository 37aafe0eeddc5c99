#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

extern const ir::OpDef sum_leading;
extern const ir::OpDef sum_all;
extern const ir::OpDef sum_squares;

}  // namespace hearth::ops
