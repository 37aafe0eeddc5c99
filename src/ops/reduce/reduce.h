#pragma once

#include <cstdint>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ops {

extern const ir::OpDef sum_leading;
extern const ir::OpDef sum_all;
/// Of x [N, ...], what each of the N rows adds up to, f32 [N]; and each of N numbers repeated in such a row.
extern const ir::OpDef sum_trailing;
extern const ir::OpDef broadcast_trailing;
extern const ir::OpDef sum_squares;
/// Elements of sum_squares' output, and where in it the sum of each input goes.
int64_t num_squares(const ir::NodeView& node);
std::vector<int64_t> square_places(const ir::NodeView& node);

}  // namespace hearth::ops
