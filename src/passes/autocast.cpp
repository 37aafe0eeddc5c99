#include "passes/autocast.h"

#include <algorithm>
#include <map>
#include <string>

#include "ir/op_def.h"
#include "ops/op_list.h"

namespace hearth::passes {
namespace {

using ir::Precision;
using ir::ValueId;

/// Rebuilds the graph node by node: casts the inputs of each op to the dtype that it requires, and infers the
/// types of its outputs again.
class Autocast {
 public:
  Autocast(const ir::Graph& old, DType dtype)
      : old_(old), dtype_(dtype), map_(old.values.size(), ir::kNone) {}

  ir::Graph run() {
    for (size_t i = 0; i < old_.values.size(); ++i) {
      const ir::Value& value = old_.values[i];
      if (value.producer != ir::kNone) continue;
      ir::Type type = value.type;
      if (is_frozen_matrix(static_cast<ValueId>(i))) type.dtype = dtype_;
      map_[i] = graph_.add_value(value.name, type, value.role);
    }
    for (const ir::Node& node : old_.nodes) rebuild(node);
    for (const ValueId id : old_.outputs) graph_.outputs.push_back(as(mapped(id), DType::f32));
    return std::move(graph_);
  }

  ValueId mapped(ValueId id) const { return id == ir::kNone ? id : map_[static_cast<size_t>(id)]; }

 private:
  void rebuild(const ir::Node& node) {
    std::vector<ValueId> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(mapped(id));
    const DType wanted = wanted_dtype(node, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (takes_part(node, i)) inputs[i] = as(inputs[i], wanted);
    }
    const auto out = graph_.add(*node.op, std::move(inputs), node.attrs, node.name);
    // The output of a lookup in a frozen table (embedding) is cast to f32: the low precision of the table
    // should not spread to later ops.
    const bool looks_up = node.op->precision != Precision::compute &&
                          std::ranges::any_of(node.inputs, [&](ValueId id) { return is_frozen_matrix(id); });
    for (size_t k = 0; k < out.size(); ++k)
      map_[static_cast<size_t>(node.outputs[k])] = looks_up ? as(out[k], DType::f32) : out[k];
  }

  /// True for a frozen matrix. It is stored in the low precision without an f32 master copy, because nothing
  /// updates it.
  bool is_frozen_matrix(ValueId id) const {
    if (id == ir::kNone) return false;
    const ir::Value& value = old_.value(id);
    return value.role == ir::Role::frozen && value.type.shape.rank() >= 2 && is_floating(value.type.dtype);
  }

  /// True if autocast may cast input `i` of the node. Floating-point activations are cast, and matrices if
  /// the op has Precision::compute; vectors (bias, norm weights) and states stay f32.
  bool takes_part(const ir::Node& node, size_t i) const {
    const ValueId id = node.inputs[i];
    if (id == ir::kNone || !is_floating(old_.type(id).dtype)) return false;
    const ir::Value& value = old_.value(id);
    if (value.role == ir::Role::scalar || value.role == ir::Role::frozen) return false;
    // A state may be used like a weight: an evaluation may read the weights' moving averages.
    if (value.role == ir::Role::parameter || value.role == ir::Role::state) {
      return node.op->precision == Precision::compute && value.type.shape.rank() >= 2;
    }
    if (node.op->precision == Precision::compute) return i < node.op->num_lowered;
    return node.op->precision == Precision::full || i < node.op->num_following;
  }

  DType wanted_dtype(const ir::Node& node, const std::vector<ValueId>& inputs) const {
    if (node.op->precision == Precision::compute) return dtype_;
    if (node.op->precision == Precision::full) return DType::f32;
    // Precision::follow: all inputs get the dtype of the first floating-point input. Integer inputs may
    // precede it.
    const auto first = std::ranges::find_if(
        inputs, [&](ValueId id) { return id != ir::kNone && is_floating(graph_.type(id).dtype); });
    return first == inputs.end() ? DType::f32 : graph_.type(*first).dtype;
  }

  ValueId as(ValueId id, DType dtype) {
    if (id == ir::kNone || graph_.type(id).dtype == dtype || !is_floating(graph_.type(id).dtype)) return id;
    const auto [found, added] = casts_.try_emplace({id, dtype}, ir::kNone);
    if (added) {
      found->second = graph_.add1(*ops::find_op("cast"), {id}, {{"dtype", std::string(dtype_name(dtype))}},
                                  graph_.value(id).name);
    }
    return found->second;
  }

  const ir::Graph& old_;
  DType dtype_;
  std::vector<ValueId> map_;
  ir::Graph graph_;
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
};

}  // namespace

void autocast(TrainGraph& train, DType dtype) {
  if (dtype == DType::f32) return;
  Autocast pass(train.graph, dtype);
  ir::Graph graph = pass.run();
  train.losses = pass.mapped(train.losses);
  train.loss_weight = pass.mapped(train.loss_weight);
  train.graph = std::move(graph);
}

}  // namespace hearth::passes
