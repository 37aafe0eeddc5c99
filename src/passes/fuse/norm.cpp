#include <numeric>

#include "ir/op_def.h"
#include "ops/conv/conv.h"
#include "ops/norm/norm.h"
#include "ops/op_list.h"
#include "passes/fuse/fuse.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::ValueId;

/// Returns the convolution that computes x, if it has no residual or activation (a bias is allowed);
/// otherwise null.
ir::Node* plain_conv_of(ir::Graph& graph, ValueId x) {
  if (!is_produced_by(graph, x, "conv2d")) return nullptr;
  ir::Node& conv = graph.nodes[static_cast<size_t>(graph.value(x).producer)];
  return input_or_none(conv, "residual") != kNone || has_activation(conv) ? nullptr : &conv;
}

void fold_into(ir::Node& norm, const ir::Node& conv) {
  norm.inputs = {input_or_none(conv, "x"),    input_or_none(conv, "w"),       input_or_none(norm, "weight"),
                 input_or_none(norm, "bias"), input_or_none(norm, "mean"),    input_or_none(norm, "var"),
                 input_or_none(conv, "bias"), input_or_none(norm, "residual")};
  for (const auto& [name, value] : conv.attrs.entries()) {
    if (name != "activation") norm.attrs.set(name, value);
  }
  norm.op = ops::find_op("conv2d_norm");
}

void measure_in(ir::Graph& graph, ir::Node& conv, ir::Node& norm) {
  conv.op = ops::find_op("conv2d_moments");
  conv.inputs.resize(std::min(conv.inputs.size(), conv.op->inputs.size()));
  const ir::Type type = conv.op->infer(ir::NodeTypes(graph, conv).view(conv)).out[1];
  conv.outputs.push_back(graph.add_value("", type, ir::Role::activation));
  norm.inputs.resize(norm.op->inputs.size(), kNone);
  norm.inputs[norm.op->input_index("moments")] = conv.outputs[1];
}

}  // namespace

void fuse_norm(ir::Graph& graph, NormFusion how) {
  const std::vector<char> trained = depend_on_parameters(graph);
  const std::vector<int> uses = graph.use_counts();
  for (ir::Node& norm : graph.nodes) {
    const bool trains = norm.op->name == "batch_norm";
    if (!trains && norm.op->name != "batch_norm_infer") continue;
    ir::Node* conv = plain_conv_of(graph, norm.inputs[0]);
    if (conv == nullptr) continue;
    if (trains && how.moments) measure_in(graph, *conv, norm);
    const bool differentiated = how.gradients && trained[static_cast<size_t>(norm.outputs[0])] != 0;
    if (!trains && !differentiated && uses[static_cast<size_t>(norm.inputs[0])] == 1) fold_into(norm, *conv);
  }
  graph.relink();
  graph.remove_dead_nodes();
}

namespace {

/// Returns the mask of y, and adds this output to the batch norm that computes y if needed; kNone if y cannot
/// have a mask.
ValueId mask_of(ir::Graph& graph, ValueId y) {
  if (!is_produced_by(graph, y, "batch_norm") || !ops::may_have_mask(graph.type(y))) return kNone;
  ir::Node& norm = graph.nodes[static_cast<size_t>(graph.value(y).producer)];
  if (norm.outputs.size() == ops::kNormMask) {
    norm.attrs.set("mask", int64_t{1});
    norm.outputs.push_back(graph.add_value("", ops::mask_type(graph.type(y)), ir::Role::activation));
  }
  return norm.outputs[ops::kNormMask];
}

/// Returns the conv2d_grad_input node that computes dy and can apply a mask; null if there is none.
ir::Node* masking_conv(ir::Graph& graph, ValueId dy, MaskFusion how) {
  if (!how.in_conv || !is_produced_by(graph, dy, "conv2d_grad_input")) return nullptr;
  ir::Node& conv = graph.nodes[static_cast<size_t>(graph.value(dy).producer)];
  const Shape& w = graph.type(conv.inputs[1]).shape;
  const bool is_matmul = w[0] * w[1] == 1 && conv.attrs.integer_or("stride", 1) == 1;
  const bool fits = conv.attrs.integer_or("groups", 1) == 1 && (how.in_matmul || !is_matmul);
  return fits && conv.inputs.size() <= ops::kGradInputMask ? &conv : nullptr;
}

}  // namespace

void fuse_masks(ir::Graph& graph, MaskFusion how) {
  const std::vector<int> uses = graph.use_counts();
  std::vector<ValueId> same_as(graph.values.size());
  std::iota(same_as.begin(), same_as.end(), 0);
  for (ir::Node& grad : graph.nodes) {
    for (ValueId& input : grad.inputs)
      if (input != kNone && ir::index(input) < same_as.size()) input = same_as[ir::index(input)];
    if (grad.op->name != "batch_norm_grad" || input_or_none(grad, "y") == kNone) continue;
    const ValueId mask = mask_of(graph, input_or_none(grad, "y")), dy = input_or_none(grad, "dy");
    if (mask == kNone) continue;
    grad.inputs.resize(grad.op->inputs.size(), kNone);
    grad.inputs[grad.op->input_index("y")] = kNone;
    ir::Node* const conv = uses[ir::index(dy)] == 1 ? masking_conv(graph, dy, how) : nullptr;
    if (conv == nullptr) {
      grad.inputs[ops::kNormGradMask] = mask;
      continue;
    }
    conv->inputs.resize(ops::kGradInputMask + 1, kNone);
    conv->inputs[ops::kGradInputMask] = mask;
    grad.attrs = {{"activation", std::string("none")}, {"residual", int64_t{0}}};
    if (grad.outputs.size() > 3) same_as[ir::index(grad.outputs[3])] = dy;
    grad.outputs.resize(3);
  }
  graph.relink();
}

}  // namespace hearth::passes
