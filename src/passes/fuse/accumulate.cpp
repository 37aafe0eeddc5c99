#include <algorithm>
#include <ranges>
#include <vector>

#include "ir/op_def.h"
#include "ops/matmul/matmul.h"
#include "ops/op_list.h"
#include "passes/fuse/fuse.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

/// True if the matmul only multiplies, with an f32 result.
bool is_plain(const ir::Graph& graph, const ir::Node& matmul) {
  return matmul.op->name == "matmul" && input_or_none(matmul, "bias") == kNone &&
         input_or_none(matmul, "residual") == kNone && !has_activation(matmul) &&
         graph.type(matmul.outputs[0]).dtype == DType::f32;
}

}  // namespace

void fuse_accumulate(ir::Graph& graph) {
  const Readers reads(graph);
  std::vector<NodeId> removed;
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes.size()); ++id) {
    const ir::Node add = graph.node(id);
    if (add.op->name != "accumulate") continue;
    const ValueId sum = add.inputs[0], product = add.inputs[1];
    const NodeId producer = graph.value(product).producer;
    if (producer == kNone || reads[product].size() != 1 || std::ranges::count(graph.outputs, product) > 0)
      continue;
    ir::Node& matmul = graph.nodes[static_cast<size_t>(producer)];
    const bool is_read_before = std::ranges::any_of(reads[sum], [&](NodeId reader) { return reader < id; });
    if (graph.value(sum).producer >= producer || is_read_before || !is_plain(graph, matmul)) continue;
    matmul.op = ops::find_op("matmul_accumulate");
    matmul.inputs = {sum, matmul.inputs[ops::MatmulIn::a], matmul.inputs[ops::MatmulIn::b]};
    matmul.outputs = add.outputs;
    removed.push_back(id);
  }
  for (const NodeId id : removed | std::views::reverse) graph.nodes.erase(graph.nodes.begin() + id);
  graph.relink();
}

}  // namespace hearth::passes
