#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// View of the same bytes under another shape.
extern const ir::OpDef reshape;
/// Permutes axes: output axis j is input axis perm[j].
extern const ir::OpDef transpose;
/// Columns [begin, begin + count) of the last axis.
extern const ir::OpDef slice_last;
/// Inverse of slice_last: places the last axis at column `begin` of `width` columns, the others zero.
extern const ir::OpDef pad_last;
/// Concatenates arrays of one dtype and equal leading axes along the last axis.
extern const ir::OpDef concat_last;

}  // namespace hearth::ops
