#include "passes/fuse/head.h"

#include <algorithm>

#include "ir/op_def.h"
#include "ops/loss/loss.h"
#include "ops/op_list.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

/// Returns the scalar by which a gradient node weights all losses; kNone if the weights may differ between
/// losses.
ValueId shared_weight(const ir::Graph& graph, const ir::Node& grad) {
  const ValueId weights = input_or_none(grad, "dlosses");
  return is_produced_by(graph, weights, "broadcast_scalar")
             ? graph.node(graph.value(weights).producer).inputs[0]
             : kNone;
}

/// Returns the forward node that belongs to the gradient node `grad`, if nothing else reads its log-sum-exp
/// output and `weight` is available before it; otherwise kNone.
NodeId forward_of(const ir::Graph& graph, const ir::Node& grad, ValueId weight) {
  const ValueId lse = input_or_none(grad, "lse");
  if (weight == kNone || !is_produced_by(graph, lse, "head_cross_entropy")) return kNone;
  const NodeId id = graph.value(lse).producer;
  const ir::Node& forward = graph.node(id);
  std::vector<ValueId> inputs = grad.inputs;
  inputs.erase(inputs.begin() + ops::HeadIn::lse, inputs.begin() + ops::HeadIn::dlosses + 1);
  const bool same = inputs == forward.inputs;
  if (!same || graph.use_counts()[static_cast<size_t>(forward.outputs[1])] != 1) return kNone;
  return graph.value(weight).producer < id ? id : kNone;
}

}  // namespace

void fuse_head(ir::Graph& graph) {
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    if (graph.node(id).op->name != "head_cross_entropy_grad") continue;
    const ir::Node grad = graph.node(id);
    const ValueId weight = shared_weight(graph, grad);
    const NodeId forward = forward_of(graph, grad, weight);
    if (forward == kNone) continue;
    ir::Node& merged = graph.nodes[static_cast<size_t>(forward)];
    merged.op = ops::find_op("head_cross_entropy_train");
    merged.inputs.insert(merged.inputs.begin() + ops::HeadIn::dloss, weight);
    merged.outputs.resize(1);
    merged.outputs.insert(merged.outputs.end(), grad.outputs.begin(), grad.outputs.end());
    merged.attrs = grad.attrs;
    graph.nodes.erase(graph.nodes.begin() + id--);
    graph.relink();
  }
  graph.remove_dead_nodes();
}

void enlarge_head_chunks(ir::Graph& graph, int64_t memory_bytes) {
  constexpr int64_t kMaxRows = 4096, kPartOfMemory = 64;
  for (ir::Node& node : graph.nodes) {
    if (!node.op->name.starts_with("head_")) continue;
    const int64_t vocab = graph.type(node.inputs[ops::HeadIn::weight]).shape[0];
    const int64_t max_bytes = memory_bytes / kPartOfMemory;
    int64_t rows = node.attrs.integer_or("rows", ops::kHeadRows);
    const int64_t tokens = graph.type(node.inputs[ops::HeadIn::x]).shape[0];
    while (rows < tokens && 2 * rows <= kMaxRows && 2 * rows * vocab * int64_t{sizeof(float)} <= max_bytes)
      rows *= 2;
    node.attrs.set("rows", rows);
  }
}

}  // namespace hearth::passes
