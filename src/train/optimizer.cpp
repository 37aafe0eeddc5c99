#include "train/optimizer.h"

#include "base/error.h"
#include "ir/op_def.h"
#include "ops/op_list.h"

namespace hearth::train {
namespace {

using ir::Role;
using ir::ValueId;

const ir::Type kScalarType{.dtype = DType::f32, .shape = {}};

/// {scale, good steps, skipped steps}, added where it is not there yet.
ValueId loss_scale_state(ir::Graph& graph) {
  const auto found = graph.find(kLossScale);
  return found ? *found : graph.add_value(kLossScale, {.dtype = DType::f32, .shape = {3}}, Role::state);
}

/// Adds nodes that share a learning rate and a gradient factor.
class UpdateBuilder {
 public:
  UpdateBuilder(ir::Graph& graph, const OptimizerOptions& options) : graph_(graph), options_(options) {}

  void run(const std::vector<passes::Gradient>& gradients) {
    std::vector<ValueId> all;
    for (const passes::Gradient& gradient : gradients) all.push_back(gradient.gradient);
    const ValueId sum_squares = add1("sum_squares", all, {});
    graph_.outputs.push_back(sum_squares);
    const ValueId inverse_scale = add_inverse_scale();
    factor_ = add1("clip_factor", {sum_squares, inverse_scale}, {{"max_norm", options_.clip_norm}});
    rate_ = scalar(kLearningRate);
    if (options_.kind == OptimizerOptions::Kind::adamw) {
      steps_ = add1("increment", {graph_.add_value("steps", kScalarType, Role::state), factor_}, {});
    }
    for (const passes::Gradient& gradient : gradients) update(gradient);
    if (options_.dynamic_loss_scale) add1("loss_scale_update", {loss_scale_state(graph_), factor_}, {});
  }

 private:
  ValueId add1(std::string_view op, std::vector<ValueId> inputs, ir::Attrs attrs,
               const std::string& name = "update") {
    return graph_.add(*ops::find_op(op), std::move(inputs), std::move(attrs), name)[0];
  }

  ValueId scalar(const char* name) {
    const auto found = graph_.find(name);
    return found ? *found : graph_.add_value(name, kScalarType, Role::scalar);
  }

  ValueId add_inverse_scale() {
    if (!options_.dynamic_loss_scale) return scalar("one");
    return add1("loss_scale_read", {loss_scale_state(graph_), scalar("one")}, {{"inverse", int64_t{1}}});
  }

  ValueId state_like(const std::string& prefix, ValueId parameter) {
    const ir::Value value = graph_.value(parameter);
    return graph_.add_value(prefix + value.name, value.type, Role::state);
  }

  void update(const passes::Gradient& gradient) {
    const std::string name = graph_.value(gradient.parameter).name;
    const ValueId updated =
        options_.kind == OptimizerOptions::Kind::sgd ? add_sgd(gradient) : add_adamw(gradient);
    if (options_.ema_decay <= 0) return;
    add1("ema_update", {state_like("ema/", gradient.parameter), updated, factor_},
         {{"decay", options_.ema_decay}}, name);
  }

  ValueId add_sgd(const passes::Gradient& gradient) {
    std::vector<ValueId> inputs = {gradient.parameter, gradient.gradient, rate_, factor_};
    if (options_.momentum != 0) inputs.push_back(state_like("momentum/", gradient.parameter));
    return add1("sgd_update", std::move(inputs),
                {{"momentum", options_.momentum},
                 {"nesterov", int64_t{options_.nesterov ? 1 : 0}},
                 {"weight_decay", options_.weight_decay}},
                graph_.value(gradient.parameter).name);
  }

  ValueId add_adamw(const passes::Gradient& gradient) {
    const ValueId m = state_like("adam_m/", gradient.parameter);
    const ValueId v = state_like("adam_v/", gradient.parameter);
    return add1("adamw_update", {gradient.parameter, gradient.gradient, rate_, factor_, m, v, steps_},
                {{"beta1", options_.beta1},
                 {"beta2", options_.beta2},
                 {"eps", options_.eps},
                 {"weight_decay", options_.weight_decay}},
                graph_.value(gradient.parameter).name);
  }

  ir::Graph& graph_;
  const OptimizerOptions& options_;
  ValueId factor_ = ir::kNone;
  ValueId rate_ = ir::kNone;
  ValueId steps_ = ir::kNone;
};

ValueId gradient_sum(ir::Graph& graph, const ir::Value& parameter) {
  return graph.add_value("grad/" + parameter.name, {.dtype = DType::f32, .shape = parameter.type.shape},
                         Role::state);
}

}  // namespace

ValueId add_loss_weight(ir::Graph& graph, const OptimizerOptions& options) {
  const ValueId inverse = graph.add_value(kInverseSamples, kScalarType, Role::scalar);
  if (!options.dynamic_loss_scale) return inverse;
  return graph.add1(*ops::find_op("loss_scale_read"), {loss_scale_state(graph), inverse},
                    {{"inverse", int64_t{0}}}, "loss_scale");
}

void add_update(passes::TrainGraph& train, const OptimizerOptions& options) {
  UpdateBuilder(train.graph, options).run(train.gradients);
}

void add_accumulation(passes::TrainGraph& train) {
  for (const passes::Gradient& gradient : train.gradients) {
    const ir::Value parameter = train.graph.value(gradient.parameter);
    const ValueId sum = gradient_sum(train.graph, parameter);
    train.graph.add(*ops::find_op("accumulate"), {sum, gradient.gradient}, {}, parameter.name);
  }
}

passes::TrainGraph make_update_graph(const ir::Graph& parameters, const OptimizerOptions& options) {
  passes::TrainGraph update;
  for (const ir::Value& value : parameters.values) {
    if (value.role != Role::parameter || value.producer != ir::kNone) continue;
    const ValueId parameter = update.graph.add_value(value.name, value.type, Role::parameter);
    update.gradients.push_back({.parameter = parameter, .gradient = gradient_sum(update.graph, value)});
  }
  add_update(update, options);
  for (const passes::Gradient& gradient : update.gradients) {
    update.graph.add(*ops::find_op("zero"), {gradient.gradient}, {}, "zero");
  }
  return update;
}

}  // namespace hearth::train
