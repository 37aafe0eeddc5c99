#pragma once

#include <span>
#include <string_view>

#include "ir/op_def.h"

namespace hearth::ops {

/// Returns the elementwise ops. Each op is a row of a table in elementwise.cpp; its formula is a functor that
/// the CPU kernel, the GPU kernel, the float64 reference and fused chains share. To add an op, add a functor
/// and its entry in Formulas (formulas.h), and a row with a gradient rule.
std::span<const ir::OpDef> elementwise_ops();
/// Returns the elementwise op with that name; InternalError if there is none.
const ir::OpDef& elementwise_op(std::string_view name);

/// x + bias, with an f32 bias for each element of the last axis.
extern const ir::OpDef bias_add;
/// x times an f32 scalar, which is the second input.
extern const ir::OpDef scale_by;
/// Converts to another floating dtype, rounding to nearest even.
extern const ir::OpDef cast;
/// Fills a tensor of the shape in the attribute "shape" with the f32 scalar input.
extern const ir::OpDef broadcast_scalar;
/// Runs a chain of elementwise ops (attribute "program", see program.h) in one pass over memory.
extern const ir::OpDef fused_elementwise;

}  // namespace hearth::ops
