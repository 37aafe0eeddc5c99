#pragma once

#include <span>
#include <string_view>

#include "ir/op_def.h"

namespace hearth::ops {

/// Returns the elementwise ops, one row each in elementwise.cpp: a formula written once as a functor serves
/// the f32 kernel, the GPU kernel, the float64 reference and fused chains. To add one: a functor and its
/// entry in Formulas (formulas.h), a gradient rule and a row.
std::span<const ir::OpDef> elementwise_ops();
/// Returns the elementwise op with that name; InternalError if there is none.
const ir::OpDef& elementwise_op(std::string_view name);

/// x + bias, with an f32 bias over the last axis.
extern const ir::OpDef bias_add;
/// x times an f32 scalar value.
extern const ir::OpDef scale_by;
/// Converts to another floating dtype, rounding to nearest even.
extern const ir::OpDef cast;
/// Fills a tensor of the attribute "shape" with an f32 scalar value.
extern const ir::OpDef broadcast_scalar;
/// A chain of elementwise ops in one loop (attribute "program", see program.h).
extern const ir::OpDef fused_elementwise;

}  // namespace hearth::ops
