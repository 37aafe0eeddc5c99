#include "passes/round_operands.h"

#include <map>
#include <tuple>
#include <utility>

#include "base/choices.h"
#include "base/error.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/round_e4m3.h"
#include "ops/op_list.h"

namespace hearth::passes {
namespace {

using ir::ValueId;
using ops::ScaleBlock;

/// Returns the blocks of the operands a [M, K] and b of a matmul; b is [N, K] if transposed, as in the
/// forward pass, otherwise [K, N]. A block may not extend over several rows of a, or over several rows or
/// columns of the result, unless the precision has such blocks.
std::pair<ScaleBlock, ScaleBlock> blocks_of(MatmulPrecision precision, bool transpose_b) {
  constexpr int64_t kLength = 128;  // DeepSeek-V3, arXiv 2412.19437, section 3.3.2
  if (precision == MatmulPrecision::fp8_tensor) return {{0, 0}, {0, 0}};
  if (precision == MatmulPrecision::fp8_blocks) return {{1, kLength}, {kLength, kLength}};
  return {{1, 0}, transpose_b ? ScaleBlock{1, 0} : ScaleBlock{0, 1}};
}

class RoundOperands {
 public:
  explicit RoundOperands(ir::Graph& graph) : graph_(graph) {}

  void run() {
    for (ir::Node& node : std::exchange(graph_.nodes, {})) {
      if (node.attrs.contains(ops::kOperandPrecision)) round_inputs(node);
      for (const ValueId out : node.outputs)
        graph_.value(out).producer = static_cast<ir::NodeId>(graph_.nodes.size());
      graph_.nodes.push_back(std::move(node));
    }
  }

 private:
  void round_inputs(ir::Node& node) {
    ir::Attrs others;
    for (const auto& [name, value] : node.attrs.entries()) {
      if (name != ops::kOperandPrecision) others.set(name, value);
    }
    const auto precision = value_named<MatmulPrecision>(node.attrs.text(ops::kOperandPrecision));
    HEARTH_CHECK(precision && node.attrs.integer_or("transpose_a", 0) == 0);
    const bool is_forward = node.attrs.integer_or("transpose_b", 0) != 0;
    const auto [a, b] = blocks_of(*precision, is_forward);
    using In = ops::MatmulIn;
    node.inputs[In::a] = rounded(node.inputs[In::a], a, is_forward, node.name);
    node.inputs[In::b] = rounded(node.inputs[In::b], b, is_forward, node.name);
    node.attrs = std::move(others);
  }

  /// Rounded weights are not shared between the forward and the backward pass, because they would be in
  /// memory all the time between.
  ValueId rounded(ValueId x, const ScaleBlock& block, bool is_forward, const std::string& name) {
    const auto [found, is_new] = rounded_.try_emplace({x, block.rows, block.columns, is_forward}, ir::kNone);
    if (is_new) {
      found->second = graph_.add1(*ops::find_op("round_e4m3"), {x},
                                  {{"block_rows", block.rows}, {"block_columns", block.columns}}, name);
    }
    return found->second;
  }

  ir::Graph& graph_;
  std::map<std::tuple<ValueId, int64_t, int64_t, bool>, ValueId> rounded_;
};

}  // namespace

void round_operands(ir::Graph& graph) { RoundOperands(graph).run(); }

}  // namespace hearth::passes
