#include "passes/backward.h"

#include "base/error.h"
#include "ir/op_def.h"
#include "ops/op_list.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

using ir::kNone;
using ir::ValueId;

class Backward {
 public:
  explicit Backward(TrainGraph& train) : train_(train), graph_(train.graph) {}

  void run() {
    num_forward_ = graph_.nodes.size();
    depends_ = depend_on_parameters(graph_);
    cotangents_.assign(graph_.values.size(), kNone);
    const Shape losses_shape = graph_.type(train_.losses).shape;
    const std::vector<int64_t> axes(losses_shape.begin(), losses_shape.end());
    add_cotangent(train_.losses, graph_.add1(*ops::find_op("broadcast_scalar"), {train_.loss_weight},
                                             {{"shape", axes}}, "loss"));
    for (auto id = static_cast<ir::NodeId>(num_forward_); id-- > 0;) visit(id);
    collect();
  }

 private:
  size_t index(ValueId id) const { return static_cast<size_t>(id); }

  void visit(ir::NodeId id) {
    const ir::Node node = graph_.node(id);  // copied because rules append nodes
    std::vector<ValueId> grad_out;
    bool wanted = false;
    for (const ValueId out : node.outputs) {
      const ValueId cotangent = depends_[index(out)] != 0 ? cotangents_[index(out)] : kNone;
      grad_out.push_back(cotangent);
      wanted = wanted || cotangent != kNone;
    }
    if (!wanted) return;
    if (node.op->vjp == nullptr) {
      user_error("{} ({}) has no gradient: {}", node.op->name, node.name, node.op->no_vjp_because);
    }
    const size_t first_new = graph_.nodes.size();
    const auto grad_in = node.op->vjp({.graph = graph_, .node = node, .grad_out = grad_out, .op = ops::op});
    HEARTH_CHECK(grad_in.size() == node.inputs.size());
    for (size_t i = first_new; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].name.empty()) graph_.nodes[i].name = node.name;
    }
    cotangents_.resize(graph_.values.size(), kNone);
    for (size_t i = 0; i < grad_in.size(); ++i) {
      if (node.inputs[i] != kNone && grad_in[i] != kNone) add_cotangent(node.inputs[i], grad_in[i]);
    }
  }

  /// Adds a cotangent of a value to those from its other readers.
  void add_cotangent(ValueId value, ValueId cotangent) {
    if (depends_[index(value)] == 0) return;
    cotangents_.resize(graph_.values.size(), kNone);
    ValueId& slot = cotangents_[index(value)];
    const ValueId sum =
        slot == kNone ? cotangent : graph_.add1(*ops::find_op("add"), {slot, cotangent}, {}, "grad");
    cotangents_.resize(graph_.values.size(), kNone);
    cotangents_[index(value)] = sum;
  }

  void collect() {
    for (size_t i = 0; i < depends_.size(); ++i) {
      const ir::Value& value = graph_.values[i];
      if (value.role != ir::Role::parameter || value.producer != kNone || cotangents_[i] == kNone) continue;
      train_.gradients.push_back({.parameter = static_cast<ValueId>(i), .gradient = cotangents_[i]});
    }
  }

  TrainGraph& train_;
  ir::Graph& graph_;
  size_t num_forward_ = 0;
  std::vector<char> depends_;
  std::vector<ValueId> cotangents_;
};

}  // namespace

void backward(TrainGraph& train) { Backward(train).run(); }

}  // namespace hearth::passes
