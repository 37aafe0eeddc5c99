#include "ops/update/update.h"

#include "ops/rules.h"

namespace hearth::ops {

std::string check_scalars(const ir::NodeView& node, size_t first, size_t last) {
  for (size_t i = first; i <= last; ++i) {
    if (node.in_type(i) != f32_type({}))
      return fmt::format("expected input {} to be f32[], got {}", i, to_string(node.in_type(i)));
  }
  return "";
}

std::string check_same_shape(const ir::NodeView& node, std::initializer_list<size_t> inputs) {
  const ir::Type& first = node.in_type(0);
  if (first.dtype != DType::f32)
    return fmt::format("expected f32 to update, got {}", dtype_name(first.dtype));
  for (const size_t i : inputs) {
    const ir::Type& type = node.in_type(i);
    if (type.shape != first.shape || !is_storage_float(type.dtype))
      return fmt::format("expected input {} to be floating {}, got {}", i, hearth::to_string(first.shape),
                         to_string(type));
  }
  return "";
}

}  // namespace hearth::ops
