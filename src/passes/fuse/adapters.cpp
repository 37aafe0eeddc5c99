// Problem: the adapters of q, k and v (and of gate and up) read the same input x, and each multiplies it by
// its own small matrix, which is a launch and a pass over x for every one of their forward and backward
// matmuls. Method: one matmul by the stacked matrices A computes the columns of all adapters, and low_rank_up
// adds the products of these columns and of the matrices B to the results of the linear layers. Gradients
// follow from the rules of these ops. Why it is right: each y is computed from the same operands. low_rank_up
// replaces the last y of its group: there all operands exist, and nothing has read any y of the group yet.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "ir/op_def.h"
#include "ops/matmul/low_rank.h"
#include "ops/op_list.h"
#include "passes/fuse/fuse.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::NodeId;
using ir::ValueId;

/// An adapter: y = base + factor (x a^T) b^T.
struct Adapter {
  ValueId x = kNone, b = kNone, base = kNone;
  ValueId a = kNone;  ///< a weight, before its cast
  double factor = 1;
  NodeId down = kNone, up = kNone;  ///< nodes that multiply by a and by b
};

/// Adapters of one input, in the order of `up`.
struct Group {
  std::vector<Adapter> adapters;
  NodeId first_reader = std::numeric_limits<NodeId>::max();  ///< first node that reads any y of the group
};

class FuseAdapters {
 public:
  explicit FuseAdapters(ir::Graph& graph)
      : graph_(graph), uses_(graph.use_counts()), reads_(graph), place_(graph.nodes.size()) {
    std::iota(place_.begin(), place_.end(), 0);
  }

  void run() {
    std::map<ValueId, Group> groups;
    const auto num_nodes = static_cast<NodeId>(graph_.nodes.size());
    for (NodeId id = 0; id < num_nodes; ++id) {
      if (const std::optional<Adapter> adapter = adapter_at(id)) add(groups[adapter->x], *adapter);
    }
    for (const auto& [x, group] : groups) fuse(group);
    if (place_.size() == static_cast<size_t>(num_nodes)) return;
    sort_by_place(graph_, place_);
    graph_.remove_dead_nodes();
  }

 private:
  /// Returns the adapter whose last matmul is node `up`, if it has a form that the ops support.
  std::optional<Adapter> adapter_at(NodeId up) const {
    const ir::Node& y = graph_.node(up);
    if (!is_linear(y) || input_or_none(y, "residual") == kNone) return std::nullopt;
    Adapter adapter{.b = y.inputs[1], .base = input_or_none(y, "residual"), .up = up};
    ValueId h = y.inputs[0];
    if (is_read_once(h) && is_produced_by(graph_, h, "scale")) {
      adapter.factor = producer(h).attrs.real("factor");
      h = producer(h).inputs[0];
    }
    if (!is_read_once(h) || !is_produced_by(graph_, h, "matmul")) return std::nullopt;
    adapter.down = graph_.value(h).producer;
    const ir::Node& down = producer(h);
    adapter.x = down.inputs[0];
    adapter.a = down.inputs[1];
    if (is_produced_by(graph_, adapter.a, "cast")) adapter.a = producer(adapter.a).inputs[0];
    const bool plain = is_linear(down) && input_or_none(down, "residual") == kNone;
    return plain && has_fitting_types(adapter, h) ? std::optional(adapter) : std::nullopt;
  }

  /// True for x W^T + residual.
  static bool is_linear(const ir::Node& node) {
    return node.op->name == "matmul" && node.attrs.integer_or("transpose_a", 0) == 0 &&
           node.attrs.integer_or("transpose_b", 0) == 1 && input_or_none(node, "bias") == kNone &&
           !has_activation(node);
  }
  bool has_fitting_types(const Adapter& adapter, ValueId h) const {
    const ir::Type &b = graph_.type(adapter.b), &x = graph_.type(adapter.x);
    const bool even = b.shape[0] % ops::kAdapterUnit == 0 && b.shape[1] % ops::kAdapterUnit == 0;
    return even && dtype_bytes(x.dtype) == 2 && graph_.type(h).dtype == x.dtype &&
           graph_.value(adapter.a).producer == kNone;
  }
  bool is_read_once(ValueId id) const { return uses_[ir::index(id)] == 1; }
  const ir::Node& producer(ValueId id) const { return graph_.node(graph_.value(id).producer); }

  /// Adds an adapter to the group of its input; first fuses and clears a group that the adapter cannot join.
  void add(Group& group, const Adapter& adapter) {
    const auto types = [&](const Adapter& of) {
      return std::pair(graph_.type(of.base).dtype, graph_.type(of.a).dtype);
    };
    const bool joins = adapter.up < group.first_reader && group.adapters.size() < ops::kMaxAdapters &&
                       (group.adapters.empty() || types(adapter) == types(group.adapters[0]));
    if (!joins) {
      fuse(group);
      group = {};
    }
    group.adapters.push_back(adapter);
    const auto readers = reads_[graph_.node(adapter.up).outputs[0]];
    if (!readers.empty()) group.first_reader = std::min(group.first_reader, readers[0]);
  }

  /// Appends the fused nodes of a group and their positions in place_. Exchanges outputs with the old nodes
  /// of y, whose new outputs nothing reads, so that they are removed as dead nodes.
  void fuse(const Group& group) {
    if (group.adapters.size() < 2) return;
    const Adapter& first = group.adapters[0];
    const ir::Node down = graph_.node(first.down);
    std::vector<ValueId> all_a, inputs = {kNone};
    std::vector<int64_t> begins;
    std::vector<double> factors;
    NodeId first_down = first.down;
    int64_t width = 0;
    for (const Adapter& adapter : group.adapters) {
      all_a.push_back(adapter.a);
      inputs.push_back(adapter.b);
      begins.push_back(width);
      factors.push_back(adapter.factor);
      width += graph_.type(adapter.b).shape[1];
      first_down = std::min(first_down, adapter.down);
    }
    for (const Adapter& adapter : group.adapters) inputs.push_back(adapter.base);
    const DType dtype = graph_.type(first.x).dtype;
    const ValueId stacked = graph_.add1(*ops::find_op("stack_rows"), all_a,
                                        {{"dtype", std::string(dtype_name(dtype))}}, down.name);
    inputs[0] = graph_.add1(*ops::find_op("matmul"), {first.x, stacked}, down.attrs, down.name);
    const std::vector<ValueId> made = graph_.add(*ops::find_op("low_rank_up"), inputs,
                                                 {{"begins", begins}, {"factors", factors}}, down.name);
    place_.insert(place_.end(),
                  {ir::index(first_down), ir::index(first_down), ir::index(group.adapters.back().up)});
    for (size_t i = 0; i < made.size(); ++i)
      std::swap(graph_.nodes.back().outputs[i], graph_.nodes[ir::index(group.adapters[i].up)].outputs[0]);
  }

  ir::Graph& graph_;
  std::vector<int> uses_;
  Readers reads_;
  std::vector<size_t> place_;  ///< sort key of each node; a new node follows the old node with equal key
};

}  // namespace

void fuse_adapters(ir::Graph& graph) { FuseAdapters(graph).run(); }

}  // namespace hearth::passes
