#include "ops/support.h"

namespace hearth::ops {

void refuse_storage_type(DType dtype) {
  internal_error("no GPU kernel supports dtype {}", dtype_name(dtype));
}

void refuse_on_gpu(const char* what, int64_t limit, int64_t got) {
  user_error("{} is {}, but GPUs support at most {}; use device=cpu", what, got, limit);
}

Inferred same_as_first(const NodeView& node) { return {.out = {node.in[0]}, .error = ""}; }

DType gradient_dtype(const ir::Graph& graph, ValueId id) {
  const ir::Value& value = graph.value(id);
  if (value.role == ir::Role::parameter) return DType::f32;
  if (value.producer == kNone) return value.type.dtype;
  const std::string_view op = graph.node(value.producer).op->name;
  const ValueId x = graph.node(value.producer).inputs[0];
  if (op == "rms_norm" || op == "layer_norm") return graph.type(x).dtype;
  return op == "cast" || op == "stack_rows" ? gradient_dtype(graph, x) : value.type.dtype;
}

ValueId emit(const VjpContext& context, std::string_view name, std::vector<ValueId> inputs, Attrs attrs) {
  return context.graph.add(context.op(name), std::move(inputs), std::move(attrs), context.node.name)[0];
}

ValueId as_dtype(const VjpContext& context, ValueId value, DType dtype) {
  if (context.graph.type(value).dtype == dtype) return value;
  return emit(context, "cast", {value}, {{"dtype", std::string(dtype_name(dtype))}});
}

ir::Node repeat_itself(const ir::Node& node) {
  ir::Node again = node;
  again.outputs.clear();
  return again;
}

double bytes_moved(const NodeView& node) {
  double bytes = 0;
  for (const Type& type : node.in) bytes += static_cast<double>(type.num_bytes());
  for (const Type& type : node.out) bytes += static_cast<double>(type.num_bytes());
  return bytes;
}

Cost cost_per_element(const NodeView& node, double flops) {
  return {.flops = flops * static_cast<double>(node.out[0].shape.num_elements()), .bytes = bytes_moved(node)};
}

Cost stream_cost(const NodeView& node, double flops) {
  return {.flops = flops * static_cast<double>(node.in[0].shape.num_elements()), .bytes = bytes_moved(node)};
}

}  // namespace hearth::ops
