#include "engine/pruning.h"

#include <algorithm>

#include "base/error.h"
#include "ir/state_name.h"
#include "ops/op_list.h"

namespace hearth::engine {
namespace {

using ir::Role;
using ir::StateKind;
using ir::ValueId;

/// Returns the distance of elements of adjacent inputs in a weight: linear weights are [out, in], those of
/// convolutions [height, width, in, out], of transposed convolutions [height, width, out, in].
int64_t input_stride(const ir::Graph& graph, ValueId weight) {
  for (const ir::Node& node : graph.nodes)
    if (node.op->name == "conv2d" && node.inputs[1] == weight) return graph.type(weight).shape.back();
  return 1;
}

int64_t num_inputs(const Shape& shape, int64_t stride) {
  return stride == 1 ? shape.back() : shape[shape.rank() - 2];
}

bool is_candidate(const ir::Graph& graph, const nn::Tensor& tensor) {
  const ir::Value& value = graph.value(tensor.value);
  return value.role == Role::parameter && value.type.shape.rank() >= 2 && !tensor.is_table && !tensor.adapter;
}

bool keeps_scores(PruneMethod method) {
  return method == PruneMethod::movement || method == PruneMethod::rigl;
}

/// True for optimizer states that have one element for each element of their weight.
bool is_masked_state(StateKind kind) {
  using enum StateKind;
  return kind == momentum || kind == adam_m || kind == adam_v || kind == average || kind == anchor ||
         kind == outer_momentum;
}

class PruneBuilder {
 public:
  PruneBuilder(ir::Graph& graph, const ir::Graph& step, std::span<const PrunedWeight> weights,
               const PruneOptions& options)
      : graph_(graph), step_(step), weights_(weights), options_(options) {
    const ir::Type scalar{.dtype = DType::f32, .shape = {}};
    sparsity_ = graph_.add_value(kPruneSparsity, scalar, Role::scalar);
    if (options.method == PruneMethod::rigl)
      dropped_ = graph_.add_value(kDroppedSparsity, scalar, Role::scalar);
    for (const PrunedWeight& weight : weights) {
      params_.push_back(copy(weight.name));
      masks_.push_back(copy(ir::spell(StateKind::mask, weight.name)));
      scores_.push_back(keeps_scores(options.method) ? copy(ir::spell(StateKind::prune_score, weight.name))
                                                     : params_.back());
    }
  }

  void run() {
    if (options_.method == PruneMethod::rigl) {
      for (size_t i = 0; i < weights_.size(); ++i) drop_and_grow(i);
    } else if (options_.pattern != PrunePattern::unstructured) {
      for (size_t i = 0; i < weights_.size(); ++i) prune_groups(i);
    } else if (options_.scope == PruneScope::layer) {
      for (size_t i = 0; i < weights_.size(); ++i)
        masks_[i] = below(i, masks_[i], scores_[i], threshold(sparsity_, {scores_[i]}), 0);
    } else {
      prune_globally();
    }
    for (size_t i = 0; i < weights_.size(); ++i) apply(params_[i], masks_[i], weights_[i].name);
    mask_states();
  }

 private:
  /// Adds a persistent value of the graph of an update.
  ValueId copy(const std::string& name) {
    const ir::Value value = step_.value(*step_.find(name));
    return graph_.add_value(name, value.type, value.role);
  }
  bool by_value() const { return options_.method == PruneMethod::movement; }
  ir::Attrs order() const { return {{"by_value", int64_t{by_value() ? 1 : 0}}}; }

  ValueId add(std::string_view op, std::vector<ValueId> inputs, ir::Attrs attrs, const std::string& name) {
    return graph_.add1(*ops::find_op(op), std::move(inputs), std::move(attrs), name);
  }
  ValueId threshold(ValueId sparsity, std::vector<ValueId> scores) {
    scores.insert(scores.begin(), sparsity);
    return add("prune_threshold", std::move(scores), order(), "prune");
  }
  ValueId below(size_t i, ValueId mask, ValueId score, ValueId threshold, int64_t first) {
    ir::Attrs attrs = order();
    attrs.set("first", first);
    return add("prune_mask", {mask, score, threshold}, std::move(attrs), weights_[i].name);
  }
  void apply(ValueId value, ValueId mask, const std::string& name) {
    add("apply_mask", {value, mask}, {}, name);
  }

  void prune_globally() {
    const ValueId all = threshold(sparsity_, scores_);
    int64_t first = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      masks_[i] = below(i, masks_[i], scores_[i], all, first);
      first += graph_.type(scores_[i]).shape.num_elements();
    }
  }
  void prune_groups(size_t i) {
    ir::Attrs attrs = order();
    attrs.set("group", group_size(options_.pattern));
    attrs.set("stride", weights_[i].stride);
    masks_[i] = add("prune_groups", {masks_[i], scores_[i], sparsity_}, std::move(attrs), weights_[i].name);
  }
  /// RigL: prunes by magnitude down to fewer weights, then grows those with the largest gradients.
  void drop_and_grow(size_t i) {
    const ValueId dropped = below(i, masks_[i], params_[i], threshold(dropped_, {params_[i]}), 0);
    const ValueId grown = add("grow_score", {scores_[i], dropped}, {}, weights_[i].name);
    masks_[i] = below(i, dropped, grown, threshold(sparsity_, {grown}), 0);
  }

  void mask_states() {
    for (const ir::Value& value : step_.values) {
      if (value.producer != ir::kNone || value.role != Role::state || value.type.dtype != DType::f32)
        continue;
      const ir::StateName state = ir::parse_state_name(value.name);
      if (!is_masked_state(state.kind) || state.worker != 0) continue;
      const auto weight = std::ranges::find(weights_, state.weight, &PrunedWeight::name);
      if (weight == weights_.end()) continue;
      const auto i = static_cast<size_t>(weight - weights_.begin());
      if (value.type == graph_.type(params_[i])) apply(copy(value.name), masks_[i], weight->name);
    }
  }

  ir::Graph& graph_;
  const ir::Graph& step_;
  std::span<const PrunedWeight> weights_;
  const PruneOptions& options_;
  ValueId sparsity_ = ir::kNone, dropped_ = ir::kNone;
  std::vector<ValueId> params_, masks_, scores_;  ///< for each weight
};

}  // namespace

std::vector<PrunedWeight> pruned_weights(const ir::Graph& graph, std::span<const nn::Tensor> tensors,
                                         const PruneOptions& options) {
  std::vector<const nn::Tensor*> candidates;
  for (const nn::Tensor& tensor : tensors)
    if (is_candidate(graph, tensor)) candidates.push_back(&tensor);
  if (options.keeps_last && !candidates.empty()) candidates.pop_back();
  std::vector<PrunedWeight> weights;
  for (const nn::Tensor* tensor : candidates) {
    const auto is_above = [&](const std::string& module) { return nn::is_under(tensor->name, module); };
    if (std::ranges::any_of(options.kept, is_above)) continue;
    const int64_t stride = input_stride(graph, tensor->value);
    if (num_inputs(graph.type(tensor->value).shape, stride) % group_size(options.pattern) == 0)
      weights.push_back({.name = tensor->name, .stride = stride});
  }
  if (weights.empty()) {
    user_error("prune.method={} finds no weight to prune; change prune.keep or prune.pattern",
               name_of(options.method));
  }
  return weights;
}

Masks::Masks(ir::Graph& graph, const MaskedUpdate& update) : graph_(graph), method_(update.method) {
  for (const PrunedWeight& weight : update.weights) {
    const ir::Type type = graph.type(*graph.find(weight.name));
    const int64_t num_bytes = num_mask_bytes(type.shape.num_elements());
    graph.add_value(ir::spell(StateKind::mask, weight.name), {.dtype = DType::u8, .shape = {num_bytes}},
                    Role::state);
    if (keeps_scores(method_))
      graph.add_value(ir::spell(StateKind::prune_score, weight.name), type, Role::state);
  }
}

ValueId Masks::mask_of(const std::string& weight) const {
  return graph_.find(ir::spell(StateKind::mask, weight)).value_or(ir::kNone);
}

void Masks::apply_to(std::vector<passes::Gradient>& gradients) {
  for (auto& [parameter, gradient] : gradients) {
    const std::string name = graph_.value(parameter).name;
    const ValueId mask = mask_of(name);
    if (mask == ir::kNone) continue;
    dense_[name] = gradient;
    gradient = graph_.add1(*ops::find_op("mask_gradient"), {gradient, mask}, {}, name);
  }
}

void Masks::add_score(ValueId parameter, ValueId factor) {
  const std::string name = graph_.value(parameter).name;
  const auto score = graph_.find(ir::spell(StateKind::prune_score, name));
  if (!score) return;
  std::vector<ValueId> inputs = {*score, dense_.at(name), factor};
  if (method_ == PruneMethod::movement) inputs.push_back(parameter);
  graph_.add1(*ops::find_op("prune_score"), std::move(inputs), {}, name);
}

ValueId Masks::applied(const std::string& weight, ValueId value) {
  const ValueId mask = mask_of(weight);
  if (mask == ir::kNone) return value;
  return graph_.add1(*ops::find_op("apply_mask"), {value, mask}, {}, weight);
}

passes::TrainGraph make_prune_graph(const ir::Graph& step, std::span<const PrunedWeight> weights,
                                    const PruneOptions& options) {
  passes::TrainGraph prune;
  PruneBuilder(prune.graph, step, weights, options).run();
  return prune;
}

}  // namespace hearth::engine
