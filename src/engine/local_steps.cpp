#include "engine/local_steps.h"

#include "ir/state_name.h"
#include "ops/op_list.h"

namespace hearth::engine {
namespace {

using ir::Role;
using ir::StateKind;
using ir::ValueId;

std::vector<ir::Value> parameters_of(const ir::Graph& graph) {
  std::vector<ir::Value> found;
  for (const ir::Value& value : graph.values) {
    if (value.role == Role::parameter && value.producer == ir::kNone) found.push_back(value);
  }
  return found;
}

class OuterBuilder {
 public:
  OuterBuilder(passes::TrainGraph& train, const LocalStepsOptions& options)
      : train_(train),
        graph_(train.graph),
        options_(options),
        share_(add_scalar(kInverseWorkers)),
        rate_(add_scalar(kOuterRate)) {}

  void add_step(const ir::Value& parameter) {
    const std::string& name = parameter.name;
    const ValueId weight = graph_.add_value(name, parameter.type, Role::parameter);
    const ValueId anchor = graph_.add_value(ir::spell(StateKind::anchor, name), parameter.type, Role::state);
    const ValueId momentum =
        graph_.add_value(ir::spell(StateKind::outer_momentum, name), parameter.type, Role::state);
    const ValueId change = all_reduced(add("sub", {anchor, weight}, name));
    const ir::Attrs nesterov = {
        {"momentum", options_.outer_momentum}, {"nesterov", int64_t{1}}, {"weight_decay", 0.0}};
    const ValueId next =
        graph_.add(*ops::find_op("sgd_update"), {anchor, change, rate_, share_, momentum}, nesterov, name)[0];
    copy(next, weight, name);
  }

  void add_average(const RunningStatistic& statistic) {
    const ValueId state = graph_.add_value(statistic.name, statistic.type, Role::state);
    copy(all_reduced(add("scale_by", {state, share_}, statistic.name)), state, statistic.name);
  }

 private:
  ValueId add_scalar(const char* name) {
    return graph_.add_value(name, {.dtype = DType::f32, .shape = {}}, Role::scalar);
  }
  ValueId add(std::string_view op, std::vector<ValueId> inputs, const std::string& name) {
    return graph_.add1(*ops::find_op(op), std::move(inputs), {}, name);
  }
  ValueId all_reduced(ValueId value) {
    train_.shared.push_back({.value = value});
    return value;
  }
  void copy(ValueId from, ValueId to, const std::string& name) {
    add("accumulate", {add("zero", {to}, name), from}, name);
  }

  passes::TrainGraph& train_;
  ir::Graph& graph_;
  const LocalStepsOptions& options_;
  ValueId share_;
  ValueId rate_;
};

}  // namespace

void add_outer_states(ir::Graph& graph) {
  for (const ir::Value& parameter : parameters_of(graph)) {
    for (const StateKind kind : {StateKind::anchor, StateKind::outer_momentum})
      graph.add_value(ir::spell(kind, parameter.name), parameter.type, Role::state);
  }
}

passes::TrainGraph make_outer_graph(const ir::Graph& step, std::span<const RunningStatistic> statistics,
                                    const LocalStepsOptions& options) {
  passes::TrainGraph outer;
  OuterBuilder builder(outer, options);
  for (const ir::Value& parameter : parameters_of(step)) builder.add_step(parameter);
  for (const RunningStatistic& statistic : statistics) builder.add_average(statistic);
  return outer;
}

void add_states_of_workers(ir::Graph& graph, int num_workers,
                           const std::function<bool(const ir::Value&)>& is_local) {
  std::vector<ir::Value> local;
  for (const ir::Value& value : graph.values) {
    if (value.producer == ir::kNone && (value.role == Role::parameter || value.role == Role::state) &&
        is_local(value))
      local.push_back(value);
  }
  for (int worker = 1; worker < num_workers; ++worker) {
    for (const ir::Value& value : local) {
      ir::StateName name = ir::parse_state_name(value.name);
      name.worker = worker;
      graph.add_value(ir::spell(name), value.type, Role::remote);
    }
  }
}

}  // namespace hearth::engine
