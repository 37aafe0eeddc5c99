#include "engine/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "ir/op_def.h"
#include "ir/state_name.h"
#include "nn/module.h"
#include "ops/op_list.h"
#include "passes/rewrite.h"

namespace hearth::engine {
namespace {

using ir::Role;
using ir::StateKind;
using ir::ValueId;

const ir::Type kScalarType{.dtype = DType::f32, .shape = {}};

ValueId scalar(ir::Graph& graph, const char* name) {
  const auto found = graph.find(name);
  return found ? *found : graph.add_value(name, kScalarType, Role::scalar);
}

/// Returns a state of the graph; adds it if there is none of this name.
ValueId add_state(ir::Graph& graph, const std::string& name, const ir::Type& type) {
  const auto found = graph.find(name);
  return found ? *found : graph.add_value(name, type, Role::state);
}

/// Returns the state kLossScale; adds it if necessary.
ValueId loss_scale_state(ir::Graph& graph) {
  return add_state(graph, kLossScale, {.dtype = DType::f32, .shape = {3}});
}

/// Min number of elements of a weight with 8-bit moments, as in bitsandbytes; smaller ones have f32 moments.
constexpr int64_t kMin8BitElements = 4096;
/// Number of elements of 8-bit moments that share a scale, as in bitsandbytes.
constexpr int64_t kBlock8Bit = 256;

/// Inputs of the update of one weight. An optimizer's rule adds the nodes and returns the updated weight.
struct WeightUpdate {
  ir::Graph& graph;
  const OptimizerOptions& options;
  passes::Gradient gradient;
  ValueId rate;
  ValueId factor;
  ValueId steps;  ///< kNone: the rule does not use the step count
  bool is_table;

  ir::Value weight() const { return graph.value(gradient.parameter); }
  ValueId state(StateKind kind, DType dtype, const Shape& shape) const {
    return add_state(graph, ir::spell(kind, weight().name), {.dtype = dtype, .shape = shape});
  }
  ValueId state(StateKind kind) const { return state(kind, DType::f32, weight().type.shape); }
  ValueId add(std::string_view op, const std::vector<ValueId>& states, ir::Attrs attrs) const {
    std::vector<ValueId> inputs = {gradient.parameter, gradient.gradient, rate, factor};
    inputs.insert(inputs.end(), states.begin(), states.end());
    return graph.add(*ops::find_op(op), std::move(inputs), std::move(attrs), weight().name)[0];
  }
};

ValueId add_sgd(const WeightUpdate& update) {
  const OptimizerOptions& o = update.options;
  std::vector<ValueId> states;
  if (o.momentum != 0) states.push_back(update.state(StateKind::momentum));
  return update.add("sgd_update", states,
                    {{"momentum", o.momentum},
                     {"nesterov", int64_t{o.nesterov ? 1 : 0}},
                     {"weight_decay", o.weight_decay}});
}

ir::Attrs adam_attrs(const OptimizerOptions& o) {
  return {{"beta1", o.beta1}, {"beta2", o.beta2}, {"eps", o.eps}, {"weight_decay", o.weight_decay}};
}

ValueId add_adamw(const WeightUpdate& update) {
  return update.add("adamw_update",
                    {update.state(StateKind::adam_m), update.state(StateKind::adam_v), update.steps},
                    adam_attrs(update.options));
}

ValueId add_adamw8bit(const WeightUpdate& update) {
  const Shape shape = update.weight().type.shape;
  const int64_t count = shape.num_elements();
  if (count < kMin8BitElements) return add_adamw(update);
  const Shape scales = {(count + kBlock8Bit - 1) / kBlock8Bit};
  return update.add("adamw8bit_update",
                    {update.state(StateKind::adam_m, DType::u8, shape),
                     update.state(StateKind::adam_m_scale, DType::f32, scales),
                     update.state(StateKind::adam_v, DType::u8, shape),
                     update.state(StateKind::adam_v_scale, DType::f32, scales), update.steps},
                    adam_attrs(update.options));
}

ValueId add_lion(const WeightUpdate& update) {
  const OptimizerOptions& o = update.options;
  return update.add("lion_update", {update.state(StateKind::momentum)},
                    {{"beta1", o.beta1}, {"beta2", o.beta2}, {"weight_decay", o.weight_decay}});
}

ValueId add_adafactor(const WeightUpdate& update) {
  const Shape shape = update.weight().type.shape;
  const ir::Attrs attrs = {{"weight_decay", update.options.weight_decay}};
  if (shape.rank() != 2)
    return update.add("adafactor_update", {update.state(StateKind::rows), ir::kNone, update.steps}, attrs);
  return update.add("adafactor_update",
                    {update.state(StateKind::rows, DType::f32, {shape[0]}),
                     update.state(StateKind::columns, DType::f32, {shape[1]}), update.steps},
                    attrs);
}

/// Scales updates to the RMS of AdamW's (Moonshot's "match_rms_adamw"), so that both use one learning rate.
ValueId add_muon(const WeightUpdate& update) {
  const OptimizerOptions& o = update.options;
  const ir::Value weight = update.weight();
  if (weight.type.shape.rank() != 2 || update.is_table) return add_adamw(update);
  return update.add("muon_update", {update.state(StateKind::momentum)},
                    {{"momentum", o.momentum},
                     {"nesterov", int64_t{o.nesterov ? 1 : 0}},
                     {"weight_decay", o.weight_decay},
                     {"adjust", std::string("match_rms_adamw")}});
}

/// An optimizer. A new optimizer needs an op, a function like add_sgd, and a row in kRules.
struct Rule {
  const char* name;
  bool counts_steps;
  ValueId (*add)(const WeightUpdate&);
};
constexpr Rule kRules[] = {
    {"sgd", false, add_sgd},   {"adamw", true, add_adamw},         {"adamw8bit", true, add_adamw8bit},
    {"lion", false, add_lion}, {"adafactor", true, add_adafactor}, {"muon", true, add_muon},
};

const Rule& rule_of(const OptimizerOptions& options) {
  for (const Rule& rule : kRules) {
    if (options.name == rule.name) return rule;
  }
  internal_error("there is no optimizer '{}'", options.name);
}

/// Returns the batch mean or variance that the statistic's batch norm computed for the micro-batch.
ValueId measured_by_norm(const ir::Graph& graph, const RunningStatistic& statistic) {
  const ValueId state = *graph.find(ir::spell(StateKind::batch_statistic, statistic.name));
  for (const ir::Node& node : graph.nodes) {
    for (size_t k = 0; k < node.op->writes.size(); ++k) {
      const int written = node.op->writes[k];
      if (written >= 0 && node.inputs[static_cast<size_t>(written)] == state) return node.outputs[k];
    }
  }
  internal_error("nothing writes {}", graph.value(state).name);
}

ValueId add_sum(ir::Graph& graph, int level, const std::string& name, const Shape& shape) {
  return graph.add_value(ir::spell({.kind = StateKind::gradient_sum, .weight = name, .level = level}),
                         {.dtype = DType::f32, .shape = shape}, Role::carried);
}

/// Sums values over this worker's micro-batches of an update, in the graph of the last micro-batch.
class LocalSum {
 public:
  LocalSum(ir::Graph& graph, const SumOptions& sums) : graph_(graph), sums_(sums) {}

  /// Returns `value`, that of the last micro-batch, plus the stored sum `name` of earlier micro-batches.
  ValueId add(ValueId value, const std::string& name) {
    if (sums_.are_sums) cleared_.push_back(value);
    if (sums_.are_sums || !sums_.has_earlier) return value;
    const Shape shape = graph_.type(value).shape;
    ValueId sum = add1("accumulate", {add_sum(graph_, 0, name, shape), value}, name);
    for (int level = 1; level <= sums_.num_levels; ++level) {
      const ValueId saved = add_sum(graph_, level, name, shape);
      sum = add1("accumulate", {sum, saved}, name);
      add1("zero", {saved}, name);
    }
    cleared_.push_back(sum);
    return sum;
  }
  ValueId add(const RunningStatistic& statistic) {
    const ValueId measured = measured_by_norm(graph_, statistic);
    return add(add1("scale_by", {measured, scalar(graph_, kPresent)}, statistic.name), statistic.name);
  }
  /// Sets the stored sums to zero. Call after the nodes of the update were added.
  void clear() {
    for (const ValueId sum : cleared_) add1("zero", {sum}, "zero");
  }

 private:
  ValueId add1(std::string_view op, std::vector<ValueId> inputs, const std::string& name) {
    return graph_.add1(*ops::find_op(op), std::move(inputs), {}, name);
  }

  ir::Graph& graph_;
  const SumOptions& sums_;
  std::vector<ValueId> cleared_;
};

/// Adds the nodes that update every weight. All updates share a learning rate and a gradient factor.
class UpdateBuilder {
 public:
  UpdateBuilder(ir::Graph& graph, const OptimizerOptions& options, std::span<const std::string> tables,
                const MaskedUpdate& masked)
      : graph_(graph), options_(options), tables_(tables), rule_(rule_of(options)), masks_(graph, masked) {}

  void run(std::vector<passes::Gradient> gradients) {
    if (options_.in_backward) return run_in_backward(gradients);
    masks_.apply_to(gradients);
    std::vector<int64_t> indices(gradients.size());
    std::iota(indices.begin(), indices.end(), 0);
    start_from(gradients, {.indices = std::move(indices), .num_gradients = std::ssize(gradients)});
    for (const passes::Gradient& gradient : gradients) update(gradient);
    finish();
  }

  /// Updates the weights of a pipeline stage; `train` contains only those.
  void run_stage(passes::TrainGraph& train, const LocalGradients& stage) {
    train.shared.push_back({.value = start_from(train.gradients, stage)});
    for (const passes::Gradient& gradient : train.gradients) update(gradient);
    finish();
  }

  /// Updates the weights that this worker owns (ZeRO-1 and sharded weights).
  void run_local(passes::TrainGraph& train, const SumOptions& sums) {
    const auto owner = [&](const passes::Gradient& gradient) {
      return sums.owners.at(graph_.value(gradient.parameter).name);
    };
    std::vector<passes::Gradient> local;
    LocalGradients indices{.indices = {}, .num_gradients = std::ssize(train.gradients)};
    for (size_t i = 0; i < train.gradients.size(); ++i) {
      if (owner(train.gradients[i]) != sums.rank) continue;
      local.push_back(train.gradients[i]);
      indices.indices.push_back(static_cast<int64_t>(i));
    }
    masks_.apply_to(local);
    train.shared.push_back({.value = start_from(local, indices)});
    auto next_local = local.begin();
    for (const passes::Gradient& gradient : train.gradients) {
      const bool is_local = owner(gradient) == sums.rank;
      if (!is_local) add_remote_states(gradient);
      const ValueId newest = is_local ? update(*next_local++) : gradient.parameter;
      if (!sums.shards_weights) train.spread.push_back({.value = newest, .root = owner(gradient)});
    }
    finish();
  }

  /// Updates a running mean or variance by the mean over the micro-batches of the update. `sum`: sum of the
  /// batch statistic over these micro-batches. Call after run().
  void move(const RunningStatistic& statistic, ValueId sum, int64_t num_micro) {
    const ValueId running = graph_.add_value(statistic.name, statistic.type, Role::state);
    const ValueId mean = add1("scale_by", {sum, scalar(graph_, kInverseMicro)}, {}, statistic.name);
    const double decay = std::pow(1 - statistic.momentum, num_micro);
    average(statistic.name, add1("ema_update", {running, mean, factor_}, {{"decay", decay}}, statistic.name));
  }
  /// Adds the EMA of the running statistics that batch norms update themselves. Call after run().
  void average_moved() {
    std::map<std::string, ValueId> moved;
    for (const ir::Node& node : graph_.nodes) {
      if (node.op->name != "batch_norm") continue;
      for (size_t k = 0; k < node.op->writes.size(); ++k) {
        const int written = node.op->writes[k];
        if (written >= 0)
          moved[graph_.value(node.inputs[static_cast<size_t>(written)]).name] = node.outputs[k];
      }
    }
    for (const auto& [name, value] : moved) average(name, value);
  }

 private:
  /// Updates each weight as soon as its gradient is final. Because the norm of all gradients is not known
  /// then, updates are skipped if the loss is not finite.
  void run_in_backward(std::vector<passes::Gradient> gradients) {
    const size_t first = graph_.nodes.size();
    start(graph_.outputs.front());
    masks_.apply_to(gradients);
    ValueId sum_squares = ir::kNone;
    for (const passes::Gradient& gradient : gradients) {
      const ValueId squares = add1("sum_all", {add1("sum_squares", {gradient.gradient}, {})}, {});
      sum_squares = sum_squares == ir::kNone ? squares : add1("add", {sum_squares, squares}, {});
      update(gradient);
    }
    graph_.outputs.push_back(sum_squares);
    passes::hoist(graph_, first);
  }

  /// Calls start(). Returns the sum of squares of each gradient, at the gradient's index in the full model,
  /// so that the order of summation of the norm does not depend on the number of workers.
  ValueId start_from(const std::vector<passes::Gradient>& gradients, const LocalGradients& local) {
    std::vector<ValueId> all;
    for (const passes::Gradient& gradient : gradients) all.push_back(gradient.gradient);
    const ValueId squares =
        add1("sum_squares", all, {{"count", local.num_gradients}, {"places", local.indices}});
    const ValueId sum_squares = add1("sum_all", {squares}, {});
    graph_.outputs.push_back(sum_squares);
    start(sum_squares);
    return squares;
  }
  void finish() {
    if (options_.dynamic_loss_scale) add1("loss_scale_update", {loss_scale_state(graph_), factor_}, {});
  }

  /// Adds values that all updates read. `finite`: a scalar; if it is not finite, no weight changes.
  void start(ValueId finite) {
    const ValueId inverse_scale = add_inverse_scale();
    factor_ = add1("clip_factor", {finite, inverse_scale}, {{"max_norm", options_.clip_norm}});
    rate_ = scalar(graph_, kLearningRate);
    for (const auto& [module, factor] : options_.rates)
      rates_.push_back(add1("scale", {rate_}, {{"factor", factor}}, module));
    if (rule_.counts_steps || options_.ema_decay > 0)
      steps_ = add1("increment", {add_state(graph_, kStepCount, kScalarType), factor_}, {});
  }

  ValueId add1(std::string_view op, std::vector<ValueId> inputs, ir::Attrs attrs,
               const std::string& name = "update") {
    return graph_.add(*ops::find_op(op), std::move(inputs), std::move(attrs), name)[0];
  }

  ValueId add_inverse_scale() {
    if (!options_.dynamic_loss_scale) return scalar(graph_, "one");
    return add1("loss_scale_read", {loss_scale_state(graph_), scalar(graph_, "one")},
                {{"inverse", int64_t{1}}});
  }

  ValueId rate_of(const std::string& weight) const {
    for (size_t i = 0; i < rates_.size(); ++i)
      if (nn::is_under(weight, options_.rates[i].first)) return rates_[i];
    return rate_;
  }

  WeightUpdate update_in(ir::Graph& graph, const passes::Gradient& gradient) const {
    const std::string& name = graph.value(gradient.parameter).name;
    return {.graph = graph,
            .options = options_,
            .gradient = gradient,
            .rate = rate_of(name),
            .factor = factor_,
            .steps = steps_,
            .is_table = std::find(tables_.begin(), tables_.end(), name) != tables_.end()};
  }

  ValueId update(const passes::Gradient& gradient) {
    const WeightUpdate weight = update_in(graph_, gradient);
    const std::string name = weight.weight().name;
    masks_.add_score(gradient.parameter, factor_);
    const ValueId updated = masks_.applied(name, rule_.add(weight));
    average(name, updated);
    return updated;
  }
  /// Updates the EMA of a weight or running statistic with its new value.
  void average(const std::string& name, ValueId value) {
    if (options_.ema_decay == 0) return;
    const ValueId state = add_state(graph_, ir::spell(StateKind::average, name), graph_.type(value));
    masks_.applied(
        name, add1("ema_update", {state, value, factor_, steps_}, {{"decay", options_.ema_decay}}, name));
  }

  /// Adds the optimizer states of a weight that another worker updates, with Role::remote.
  void add_remote_states(const passes::Gradient& gradient) {
    ir::Graph copy;
    copy.values = graph_.values;
    rule_.add(update_in(copy, gradient));
    for (size_t i = graph_.values.size(); i < copy.values.size(); ++i) {
      const ir::Value& value = copy.values[i];
      if (value.role == Role::state && value.producer == ir::kNone)
        graph_.add_value(value.name, value.type, Role::remote);
    }
  }

  ir::Graph& graph_;
  const OptimizerOptions& options_;
  std::span<const std::string> tables_;
  const Rule& rule_;
  Masks masks_;
  ValueId factor_ = ir::kNone;
  ValueId rate_ = ir::kNone;
  std::vector<ValueId> rates_;  ///< learning rate of each entry of options_.rates
  ValueId steps_ = ir::kNone;
};

}  // namespace

std::span<const std::string> optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> made;
    for (const Rule& rule : kRules) made.emplace_back(rule.name);
    return made;
  }();
  return names;
}

ValueId add_loss_weight(ir::Graph& graph, const OptimizerOptions& options) {
  const ValueId inverse = graph.add_value(kInverseSamples, kScalarType, Role::scalar);
  if (!options.dynamic_loss_scale) return inverse;
  return graph.add1(*ops::find_op("loss_scale_read"), {loss_scale_state(graph), inverse},
                    {{"inverse", int64_t{0}}}, "loss_scale");
}

std::map<std::string, int> owners_of(const ir::Graph& graph, int num_workers) {
  std::vector<ir::Value> weights;
  for (const ir::Value& value : graph.values) {
    if (value.role == Role::parameter && value.producer == ir::kNone) weights.push_back(value);
  }
  std::ranges::stable_sort(weights, std::greater<>(),
                           [](const ir::Value& weight) { return weight.type.num_bytes(); });
  std::map<std::string, int> owners;
  std::vector<int64_t> bytes(static_cast<size_t>(num_workers), 0);
  for (const ir::Value& weight : weights) {
    const auto smallest = std::ranges::min_element(bytes);
    *smallest += weight.type.num_bytes();
    owners[weight.name] = static_cast<int>(smallest - bytes.begin());
  }
  return owners;
}

void add_update(passes::TrainGraph& train, const OptimizerOptions& options,
                std::span<const std::string> tables, std::span<const RunningStatistic> statistics,
                const SumOptions& sums, const MaskedUpdate& masked) {
  LocalSum local(train.graph, sums);
  std::vector<ValueId> measured;
  for (passes::Gradient& gradient : train.gradients) {
    // Copies the name, because references to values become invalid when values are added.
    const std::string name = train.graph.value(gradient.parameter).name;
    gradient.gradient = local.add(gradient.gradient, name);
  }
  for (const RunningStatistic& statistic : statistics) measured.push_back(local.add(statistic));
  if (!sums.owners.empty() && std::ssize(train.gradients) < sums.num_workers)
    user_error(
        "the model has {} trained weights, but parallel={} needs one for each of {} devices; set "
        "parallel=data",
        train.gradients.size(), sums.shards_weights ? "sharded" : "zero1", sums.num_workers);
  if (sums.num_workers > 1 && !sums.are_sums) {
    // Reverse order, because the backward pass computes the gradients of the last layers first.
    for (size_t i = train.gradients.size(); i-- > 0;) {
      const auto [parameter, gradient] = train.gradients[i];
      const auto owner = sums.owners.find(train.graph.value(parameter).name);
      train.shared.push_back({.value = gradient, .root = owner == sums.owners.end() ? -1 : owner->second});
    }
    for (const ValueId value : measured) train.shared.push_back({.value = value});
  }
  UpdateBuilder builder(train.graph, options, tables, masked);
  if (sums.are_sums) {
    builder.run_stage(train, sums.local);
  } else if (sums.owners.empty()) {
    builder.run(train.gradients);
  } else {
    builder.run_local(train, sums);
  }
  for (size_t i = 0; i < statistics.size(); ++i) builder.move(statistics[i], measured[i], sums.num_micro);
  if (statistics.empty()) builder.average_moved();
  local.clear();
}

std::vector<ValueId> add_accumulation(passes::TrainGraph& train, std::span<const RunningStatistic> statistics,
                                      bool may_be_idle) {
  const auto add = [&](ValueId sum, ValueId value, const std::string& name) {
    return train.graph.add1(*ops::find_op("accumulate"), {sum, value}, {}, name);
  };
  std::vector<ValueId> sums;
  for (const passes::Gradient& gradient : train.gradients) {
    const ir::Value parameter = train.graph.value(gradient.parameter);
    sums.push_back(add(add_sum(train.graph, 0, parameter.name, parameter.type.shape), gradient.gradient,
                       parameter.name));
  }
  for (const RunningStatistic& statistic : statistics) {
    ValueId measured = measured_by_norm(train.graph, statistic);
    if (may_be_idle)
      measured = train.graph.add1(*ops::find_op("scale_by"), {measured, scalar(train.graph, kPresent)}, {},
                                  statistic.name);
    add(add_sum(train.graph, 0, statistic.name, statistic.type.shape), measured, statistic.name);
  }
  return sums;
}

passes::TrainGraph make_move_graph(const ir::Graph& sums, int from, int to) {
  passes::TrainGraph move;
  for (const ir::Value& value : sums.values) {
    const ir::StateName state = ir::parse_state_name(value.name);
    if (value.role != Role::carried || value.producer != ir::kNone || state.kind != StateKind::gradient_sum ||
        state.level != 0)
      continue;
    const std::string& name = state.weight;
    const ValueId source = add_sum(move.graph, from, name, value.type.shape);
    const ValueId target = add_sum(move.graph, to, name, value.type.shape);
    move.graph.add(*ops::find_op("accumulate"), {target, source}, {}, name);
    move.graph.add(*ops::find_op("zero"), {source}, {}, name);
  }
  return move;
}

}  // namespace hearth::engine
