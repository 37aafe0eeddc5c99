#pragma once

#include <cstdint>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ops {

/// Sums x over all axes but the last, to f32 [x.back()].
extern const ir::OpDef sum_leading;
/// Sums all elements of x, to f32 [].
extern const ir::OpDef sum_all;
/// sum_trailing sums each of the N rows of x [N, ...], to f32 [N]; broadcast_trailing repeats each of N
/// values in all elements of its row.
extern const ir::OpDef sum_trailing;
extern const ir::OpDef broadcast_trailing;
/// Computes the sum of squares of each of several f32 inputs, into one f32 array: the sum of input k is
/// element places[k] (attribute; default k).
extern const ir::OpDef sum_squares;
/// Returns the number of elements of the output of sum_squares; square_indices() returns the index of each
/// input's sum.
int64_t num_squares(const ir::NodeView& node);
std::vector<int64_t> square_indices(const ir::NodeView& node);

}  // namespace hearth::ops
