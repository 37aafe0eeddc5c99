#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Returns the same bytes with another shape.
extern const ir::OpDef reshape;
/// Permutes the axes: output axis j is input axis perm[j].
extern const ir::OpDef transpose;
/// Returns elements [begin, begin + count) of the last axis.
extern const ir::OpDef slice_last;
/// Pads the last axis with zeros to `width` elements; x begins at element `begin`. The gradient of
/// slice_last.
extern const ir::OpDef pad_last;
/// Concatenates arrays along the last axis; dtype and other axes must be equal.
extern const ir::OpDef concat_last;
/// The rows of several matrices in one, converted to the attribute `dtype`.
extern const ir::OpDef stack_rows;
/// Inverse of stack_rows: output i has the next rows[i] rows.
extern const ir::OpDef unstack_rows;

}  // namespace hearth::ops
