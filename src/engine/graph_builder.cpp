#include "engine/graph_builder.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/loader.h"
#include "ir/state_name.h"
#include "ops/op_list.h"

namespace hearth::engine {
namespace {

using ir::ValueId;

/// Lets an evaluation graph read the exponential moving averages of weights and running statistics instead of
/// the values themselves.
void use_average(ir::Graph& graph, std::span<const nn::Tensor> tensors) {
  for (const nn::Tensor& tensor : tensors) {
    ir::Value& value = graph.value(tensor.value);
    if (value.role == ir::Role::parameter || tensor.is_running_statistic)
      value.name = ir::spell(ir::StateKind::average, value.name);
  }
  for (ir::Value& value : graph.values)
    if (value.role == ir::Role::parameter) value.role = ir::Role::state;
}

/// Throws a UserError if no weight is in this module, because a misspelled name would otherwise be ignored
/// silently.
void check_module(const char* key, const std::string& module, std::span<const nn::Tensor> tensors) {
  std::vector<std::string> names;
  for (const nn::Tensor& tensor : tensors) {
    if (nn::is_under(tensor.name, module)) return;
    const std::string name = tensor.name.substr(0, tensor.name.find('.'));
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  user_error("{0}: the model has no module '{2}'; its modules are {1} and their submodules{3}", key,
             fmt::join(names, ", "), module, did_you_mean(module, names));
}

void check_modules(const EngineOptions& options, std::span<const nn::Tensor> tensors) {
  for (const std::string& module : options.frozen) check_module("train.freeze", module, tensors);
  for (const auto& [module, factor] : options.optimizer.rates)
    check_module("optimizer.rates", module, tensors);
  for (const std::string& module : options.prune.kept) check_module("prune.keep", module, tensors);
  if (!options.frozen.empty() && std::ranges::none_of(tensors, &nn::Tensor::trainable))
    user_error("train.freeze freezes all weights, so that none is left to train; remove an entry");
}

}  // namespace

passes::TrainGraph build_graph(Plan& plan, Purpose purpose, BatchShape shape) {
  const EngineOptions& options = plan.options;
  passes::TrainGraph train;
  const auto mode = purpose == Purpose::evaluate ? nn::Builder::Mode::eval : nn::Builder::Mode::train;
  nn::Builder builder(train.graph, mode, options.seed, options.adapter);
  builder.freeze(options.frozen);
  builder.round_linear(options.rounding);
  builder.multiply_in(options.matmul_precision);
  const Objective::Graph built = options.objective->build(builder, shape);
  builder.check_adapter();
  builder.check_rounding();
  check_modules(options, builder.tensors());
  train.losses = built.losses;
  plan.has_losses = built.losses != ir::kNone;
  if (plan.has_losses)
    train.graph.outputs.push_back(train.graph.add1(*ops::find_op("sum_all"), {built.losses}, {}, "loss"));
  train.graph.outputs.insert(train.graph.outputs.end(), built.outputs.begin(), built.outputs.end());
  if (plan.tensors.empty()) {
    plan.tensors = builder.tensors();
    plan.teacher_tensors = builder.teacher_tensors();
    for (const nn::Tensor& tensor : plan.tensors) {
      if (tensor.is_table) plan.tables.push_back(tensor.name);
    }
    if (options.prune.method != PruneMethod::none && mode == nn::Builder::Mode::train)
      plan.pruned = pruned_weights(train.graph, plan.tensors, options.prune);
    for (const ValueId input : built.inputs) plan.input_names.push_back(train.graph.value(input).name);
    HEARTH_CHECK(plan.input_names.size() <= data::kMaxArrays);
  }
  if (purpose == Purpose::evaluate) {
    if (options.optimizer.ema_decay > 0) use_average(train.graph, builder.tensors());
  } else {
    train.loss_weight = add_loss_weight(train.graph, options.optimizer);
  }
  const bool trains = purpose == Purpose::step || purpose == Purpose::accumulate;
  if (trains && options.shards > 1) plan.statistics = take_statistics(train.graph);
  return train;
}

}  // namespace hearth::engine
