#include "ops/op_list.h"

#include <array>

namespace hearth::ops {
namespace {

constexpr std::array<const ir::OpDef*, 0> kOps = {};

}  // namespace

std::span<const ir::OpDef* const> op_list() { return kOps; }

const ir::OpDef* find_op(std::string_view name) {
  for (const ir::OpDef* op : op_list()) {
    if (op->name == name) return op;
  }
  return nullptr;
}

}  // namespace hearth::ops
