#include "ops/as_matmul.h"

#include <map>

#include "ops/conv/conv.h"

namespace hearth::ops {
namespace {

using ir::NodeView;

/// Axes but the last as one.
ir::Type matrix_of(ir::Type type) {
  if (type.shape.rank() < 2) return type;
  const int64_t columns = type.shape.back();
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < type.shape.rank(); ++axis) rows *= type.shape[axis];
  type.shape = {rows, columns};
  return type;
}
MatmulNode with_matrices(const NodeView& node) {
  MatmulNode made{.attrs = node.attrs, .in = {}, .out = matrix_of(node.out_type(0))};
  for (const ir::Type& type : node.in) made.in.push_back(matrix_of(type));
  return made;
}

/// With one tap, images are matrices: a row for each pixel, a column for each channel.
bool has_one_tap(const Shape& x, const Shape& w, const ir::Attrs& attrs) {
  const cpu::ConvShape shape = conv_shape(x, w, attrs);
  return shape.kernel_h == 1 && shape.kernel_w == 1 && shape.stride == 1 && shape.padding == 0;
}
std::optional<MatmulNode> of_conv(const NodeView& node) {
  if (!has_one_tap(node.in_type(ConvIn::x).shape, node.in_type(ConvIn::w).shape, node.attrs))
    return std::nullopt;
  return with_matrices(node);
}
std::optional<MatmulNode> of_input_gradient(const NodeView& node) {
  if (!has_one_tap(node.out_type(0).shape, node.in_type(1).shape, node.attrs)) return std::nullopt;
  MatmulNode made = with_matrices(node);
  made.attrs.set("transpose_b", int64_t{1});
  return made;
}
std::optional<MatmulNode> of_weight_gradient(const NodeView& node) {
  if (!has_one_tap(node.in_type(0).shape, node.out_type(0).shape, node.attrs)) return std::nullopt;
  MatmulNode made = with_matrices(node);
  made.attrs.set("transpose_a", int64_t{1});
  return made;
}

}  // namespace

std::optional<MatmulNode> as_matmul(const ir::OpDef& op, const NodeView& node) {
  using Rule = std::optional<MatmulNode> (*)(const NodeView&);
  static const std::map<std::string_view, Rule> kRules = {
      {"matmul", [](const NodeView& matmul) { return std::optional(with_matrices(matmul)); }},
      {"conv2d", of_conv},
      {"conv2d_moments", of_conv},
      {"conv2d_grad_input", of_input_gradient},
      {"conv2d_grad_weight", of_weight_gradient},
  };
  const auto found = kRules.find(op.name);
  return found == kRules.end() ? std::nullopt : found->second(node);
}

}  // namespace hearth::ops
