#pragma once

#include <cstdint>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ops {

/// Sums x over all axes but the last, to f32 [x.back()].
extern const ir::OpDef sum_leading;
/// Sums all elements of x, to f32 [].
extern const ir::OpDef sum_all;
/// Sums each of the N rows of x [N, ...] to f32 [N]; and the inverse broadcast of N values to rows.
extern const ir::OpDef sum_trailing;
extern const ir::OpDef broadcast_trailing;
/// Sums of squares of several f32 inputs, into one f32 array: element places[k] is the sum of input k.
extern const ir::OpDef sum_squares;
/// Number of elements of sum_squares' output, and the index in it for the sum of each input.
int64_t num_squares(const ir::NodeView& node);
std::vector<int64_t> square_indices(const ir::NodeView& node);

}  // namespace hearth::ops
