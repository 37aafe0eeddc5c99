#pragma once

#include <span>
#include <string_view>

#include "ir/op_def.h"

namespace hearth::ops {

/// Returns all ops, sorted by family. To add an op, define its OpDef in ops/<family>/<op>.cpp, declare it in
/// ops/<family>/<family>.h and add one line to op_list.cpp; the generated tests then cover the op.
std::span<const ir::OpDef* const> op_list();

/// Returns the op with that name; null if there is none.
const ir::OpDef* find_op(std::string_view name);
/// Returns the op with that name; InternalError if there is none.
const ir::OpDef& op(std::string_view name);

}  // namespace hearth::ops
