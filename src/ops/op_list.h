#pragma once

#include <span>
#include <string_view>

#include "ir/op_def.h"

namespace hearth::ops {

/// Every operation, sorted by family. To add one: write ops/<family>/<op>.cpp with its record, declare the
/// record in ops/<family>/<family>.h and add one line to op_list.cpp; the generated tests then cover it.
std::span<const ir::OpDef* const> op_list();

/// The op with that name, or null.
const ir::OpDef* find_op(std::string_view name);
/// The op with that name; InternalError where there is none.
const ir::OpDef& op(std::string_view name);

}  // namespace hearth::ops
