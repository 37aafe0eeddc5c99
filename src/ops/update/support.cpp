#include "ops/update/support.h"

namespace hearth::ops {

std::string check_scalars(const NodeView& node, const OpDef& op, size_t first, size_t last) {
  for (size_t i = first; i <= last; ++i) {
    if (node.in_type(i) != kScalar)
      return fmt::format("expected input '{}' to be f32[], got {}", op.input_name(i),
                         to_string(node.in_type(i)));
  }
  return "";
}

std::string check_same_shape(const NodeView& node, const OpDef& op, std::initializer_list<size_t> inputs) {
  const Type& first = node.in_type(0);
  if (first.dtype != DType::f32)
    return fmt::format("expected an f32 parameter, got {}", dtype_name(first.dtype));
  for (const size_t i : inputs) {
    const Type& type = node.in_type(i);
    if (type.shape != first.shape || !is_storage_float(type.dtype))
      return fmt::format("expected input '{}' to be floating {}, got {}", op.input_name(i),
                         hearth::to_string(first.shape), to_string(type));
  }
  return "";
}

Inferred infer_with_momentum(const NodeView& node, const OpDef& op) {
  if (auto error = check_same_shape(node, op, {kGrad}); !error.empty()) return refuse(error);
  if (auto error = check_scalars(node, op, kRate, kFactor); !error.empty()) return refuse(error);
  const Type& type = node.in_type(0);
  if (node.in_type(kFirstState) != type)
    return refuse_type("the momentum", to_string(type), node.in_type(kFirstState));
  return {.out = {type, type}, .error = ""};
}

AdamOptions adam_options(const Attrs& attrs) {
  return {.beta1 = attrs.real("beta1"),
          .beta2 = attrs.real("beta2"),
          .eps = attrs.real("eps"),
          .weight_decay = attrs.real("weight_decay")};
}

}  // namespace hearth::ops
