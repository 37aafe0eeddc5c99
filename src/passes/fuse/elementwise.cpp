#include <algorithm>

#include "ops/elementwise/program.h"
#include "ops/op_list.h"
#include "passes/fuse/fuse.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

/// A chain of elementwise ops to be fused: its inputs and its steps in order.
struct Chain {
  std::vector<ValueId> inputs;
  std::vector<ops::ElementwiseStep> steps;
};

class FuseElementwise {
 public:
  explicit FuseElementwise(ir::Graph& graph) : graph_(graph), uses_(graph.use_counts()), reads_(graph) {}

  void run() {
    mark_early_sums();
    // Visits nodes from the end, because each chain grows from its last node: this gives the longest chains.
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      if (!is_elementwise(graph_.nodes[i]) || absorbed(graph_.nodes[i])) continue;
      Chain chain;
      if (!grow(graph_.nodes[i], chain) || chain.steps.size() < 2) continue;
      ir::Node& node = graph_.nodes[i];
      node.op = ops::find_op("fused_elementwise");
      node.inputs = chain.inputs;
      node.attrs = {{"program", ops::print_program(chain.steps)}};
    }
    graph_.remove_dead_nodes();
  }

 private:
  static bool is_elementwise(const ir::Node& node) { return node.op->elementwise != nullptr; }

  bool is_early_sum(ValueId value) const {
    return is_early_sum_[static_cast<size_t>(graph_.value(value).producer)] != 0;
  }
  /// Marks additions that must not be fused into their reader, because that reader also waits for a later
  /// non-elementwise node: until then, both terms would stay live instead of their sum. Typical of gradients
  /// that are sums over several readers.
  void mark_early_sums() {
    is_early_sum_.assign(graph_.nodes.size(), 0);
    const auto is_late = [&](ValueId value, NodeId sum) {
      const NodeId producer = graph_.value(value).producer;
      return producer != kNone && producer > sum && !is_elementwise(graph_.node(producer));
    };
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes.size()); ++id) {
      if (graph_.node(id).op->name != "add") continue;
      const ValueId out = graph_.node(id).outputs[0];
      if (uses_[static_cast<size_t>(out)] != 1 || reads_[out].empty()) continue;
      const ir::Node& reader = graph_.node(reads_[out].front());
      is_early_sum_[static_cast<size_t>(id)] =
          static_cast<char>(std::any_of(reader.inputs.begin(), reader.inputs.end(), [&](ValueId in) {
            return in != kNone && in != out && is_late(in, id);
          }));
    }
  }

  /// True if the node's only reader is an elementwise node, so that the node will be fused into it.
  bool absorbed(const ir::Node& node) const {
    const ValueId out = node.outputs[0];
    if (uses_[static_cast<size_t>(out)] != 1 || reads_[out].empty() || is_early_sum(out)) return false;
    const ir::Node& reader = graph_.node(reads_[out].front());
    return is_elementwise(reader) || reader.op->name == "fused_elementwise";
  }

  /// Appends to the chain the node's elementwise producers that have no other reader, and then the node.
  /// Returns false if the chain has become too long.
  bool grow(const ir::Node& node, Chain& chain) {
    ops::ElementwiseStep step{.op = node.op, .parameter = ops::elementwise_parameter(*node.op, node.attrs)};
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId in = node.inputs[k];
      const NodeId producer = graph_.value(in).producer;
      const bool take = producer != kNone && is_elementwise(graph_.node(producer)) &&
                        uses_[static_cast<size_t>(in)] == 1 && !is_early_sum(in) &&
                        std::ssize(chain.steps) < ops::kMaxSteps / 2;
      if (take && grow(graph_.node(producer), chain)) {
        step.operands[k] = -static_cast<int>(chain.steps.size());
      } else {
        const auto found = std::find(chain.inputs.begin(), chain.inputs.end(), in);
        step.operands[k] = static_cast<int>(found - chain.inputs.begin());
        if (found == chain.inputs.end()) chain.inputs.push_back(in);
      }
    }
    chain.steps.push_back(step);
    return std::ssize(chain.inputs) <= ops::kMaxInputs && std::ssize(chain.steps) <= ops::kMaxSteps;
  }

  ir::Graph& graph_;
  std::vector<int> uses_;
  Readers reads_;                   ///< readers of each value, before any fusion
  std::vector<char> is_early_sum_;  ///< for each node, 1 if mark_early_sums() has marked it
};

}  // namespace

void fuse_elementwise(ir::Graph& graph) { FuseElementwise(graph).run(); }

}  // namespace hearth::passes
