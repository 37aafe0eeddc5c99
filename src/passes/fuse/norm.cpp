#include "ir/op_def.h"
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

}  // namespace hearth::passes
