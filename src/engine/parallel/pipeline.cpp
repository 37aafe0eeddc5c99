// Pipeline parallelism: each worker has one stage of the model (passes/parallel/stages.h). One program
// computes the stage for all micro-batches of an update (passes/parallel/unroll.h).
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "engine/parallel/strategy.h"
#include "engine/plan_builder.h"
#include "engine/runtime.h"
#include "ir/op_def.h"
#include "ir/state_name.h"
#include "passes/parallel/unroll.h"

namespace hearth::engine {
namespace {

using ir::Role;
using ir::ValueId;

/// Returns the parameters and states of a graph, in the graph's order.
std::vector<ir::Value> persistent_values(const ir::Graph& graph) {
  std::vector<ir::Value> found;
  for (const ir::Value& value : graph.values) {
    if (value.producer == ir::kNone && (value.role == Role::parameter || value.role == Role::state))
      found.push_back(value);
  }
  return found;
}

/// Returns the bytes of all persistent values except frozen weights (`all`), or of the parameters only.
double bytes_of(const ir::Graph& graph, bool all) {
  double num_bytes = 0;
  for (const ir::Value& value : graph.values) {
    const bool counts =
        all ? ir::is_persistent(value.role) && value.role != Role::frozen : value.role == Role::parameter;
    if (value.producer == ir::kNone && counts) num_bytes += static_cast<double>(value.type.num_bytes());
  }
  return num_bytes;
}

/// Adds gradient accumulation: replaces each gradient by its sum over this and all earlier micro-batches of
/// the update.
void add_up_gradients(passes::TrainGraph& train) {
  const std::vector<ValueId> sums = add_accumulation(train, {});
  for (size_t i = 0; i < sums.size(); ++i) train.gradients[i].gradient = sums[i];
}

double flops_of(const ir::Graph& graph) {
  double flops = 0;
  for (const ir::Node& node : graph.nodes) flops += ir::cost_of(graph, node).flops;
  return flops;
}

/// Assigns the states of each weight to the weight's stage. Values without an entry in `homes` are on every
/// stage.
void add_homes(std::map<std::string, int>& homes, const std::vector<ir::Value>& values) {
  for (const ir::Value& value : values) {
    const auto weight = homes.find(ir::parse_state_name(value.name).weight);
    if (weight != homes.end()) homes.emplace(value.name, weight->second);
  }
}

passes::Stages split(const Plan& plan, const passes::TrainGraph& micro, double weight_copies = 1) {
  const EngineOptions& options = plan.options;
  std::vector<passes::StageDevice> devices = options.devices;
  devices.resize(static_cast<size_t>(options.num_workers));
  return passes::split_stages(micro, {.devices = std::move(devices),
                                      .device = options.device,
                                      .num_micro = options.accumulate,
                                      .weight_copies = weight_copies,
                                      .homes = plan.stage.homes});
}

passes::UnrollOptions unroll_options(const Plan& plan, int64_t num_micro) {
  return {.stage = plan.options.rank,
          .num_micro = num_micro,
          .through_host = plan.options.backend == exec::Backend::gpu,
          .first_values = plan.stage.values};
}

/// Splits the model into stages, and assigns each persistent value to a stage.
void plan_stages(PlanBuilder& builder, const passes::TrainGraph& micro, BatchShape shape) {
  Plan& plan = builder.plan();
  const EngineOptions& options = plan.options;
  StagePlan& stage = plan.stage;
  const passes::TrainGraph update = builder.compute(Purpose::step, shape, [&](passes::TrainGraph& train) {
    add_update(train, options.optimizer, plan.tables, {}, {.has_earlier = options.accumulate > 1});
  });
  const double copies = bytes_of(update.graph, true) / std::max(1.0, bytes_of(update.graph, false));
  stage.flops = flops_of(update.graph) + static_cast<double>(options.accumulate - 1) * flops_of(micro.graph);
  stage.homes = split(plan, micro, copies).homes;
  stage.values = persistent_values(update.graph);
  add_homes(stage.homes, stage.values);
  for (ir::Value& value : stage.values) {
    const auto home = stage.homes.find(value.name);
    if (home != stage.homes.end() && home->second != options.rank) value.role = Role::remote;
  }
}

SumOptions sums_of_stage(const Plan& plan, const passes::TrainGraph& micro) {
  const EngineOptions& options = plan.options;
  SumOptions sums{.num_workers = static_cast<int>(options.num_workers), .are_sums = true};
  std::vector<int64_t> indices;
  for (size_t i = 0; i < micro.gradients.size(); ++i) {
    const std::string& weight = micro.graph.value(micro.gradients[i].parameter).name;
    if (plan.stage.homes.at(weight) == options.rank) indices.push_back(static_cast<int64_t>(i));
  }
  if (indices.empty()) {
    user_error("stage {1} of {0} pipeline stages has no weight to train; try fewer devices",
               options.num_workers, options.rank);
  }
  sums.local = {.indices = std::move(indices), .num_gradients = std::ssize(micro.gradients)};
  return sums;
}

exec::Program compile_stage(PlanBuilder& builder, const passes::TrainGraph& micro, BatchShape shape,
                            int64_t num_micro, bool updates) {
  Plan& plan = builder.plan();
  const passes::Stages stages = split(plan, micro);
  for (const auto& [name, home] : stages.homes) HEARTH_CHECK(plan.stage.homes.at(name) == home);
  std::vector<int64_t>& num_bytes = plan.stage.input_bytes[shape];
  passes::TrainGraph own = passes::unroll(micro, stages, unroll_options(plan, num_micro));
  num_bytes.clear();
  for (const std::string& name : plan.input_names) {
    const auto input = own.graph.find(passes::name_in_micro_batch(0, name));
    num_bytes.push_back(input ? own.graph.type(*input).num_bytes() : 0);
  }
  if (updates) add_update(own, plan.options.optimizer, plan.tables, {}, sums_of_stage(plan, micro));
  return builder.finish_computed(own, Purpose::step);
}

exec::Program compile_evaluation(PlanBuilder& builder, BatchShape shape) {
  Plan& plan = builder.plan();
  const passes::TrainGraph train = builder.compute(Purpose::evaluate, shape, {});
  const passes::Stages stages = split(plan, train);
  std::vector<StagePlan::Output>& outputs = plan.stage.outputs[shape];
  for (const ValueId id : train.graph.outputs) {
    const int stage = stages.of_node[static_cast<size_t>(train.graph.value(id).producer)];
    HEARTH_CHECK(stage != passes::Stages::kEvery);
    outputs.push_back({.stage = stage, .num_elements = train.graph.type(id).shape.num_elements()});
  }
  return builder.place(passes::unroll(train, stages, unroll_options(plan, 1)), Purpose::evaluate);
}

class Pipeline : public Strategy {
 public:
  int64_t num_sharing(const EngineOptions&) const override { return 1; }
  bool evaluates_jointly() const override { return true; }
  // A stage and its neighbors may wait for each other's values.
  bool needs_exchange_queue() const override { return true; }

  void compile(PlanBuilder& builder, std::span<const int64_t> train_sizes,
               std::span<const int64_t> eval_sizes) const override;
  double flops_per_update(const Plan& plan) const override { return plan.stage.flops; }
  std::vector<int64_t> stage_parameters(const Plan& plan) const override;

  void open(Runtime& runtime) override;
  exec::Executor* start(Runtime& runtime, const Update& update, float* losses) override;
  void gather_losses(Runtime& runtime, float* losses) override;
  // Does nothing: start() copies all micro-batches of an update.
  void stage_ahead(Runtime&, const MicroBatch&) override {}
  double evaluate(Runtime& runtime, const MicroBatch& batch) override;
  std::span<const float> output(size_t index) const override { return gathered_.at(index); }

 private:
  MicroBatch copy(const StagePlan& stage, const MicroBatch& batch, int64_t index);

  std::vector<std::vector<float>> gathered_;  ///< outputs of the last evaluation, gathered from all stages
  std::vector<MicroBatch> batches_;           ///< micro-batches of the present update
  /// Name of the scalar kInverseSamples for each micro-batch of a program.
  std::vector<std::string> inverse_samples_;
  exec::Region inputs_;     ///< copies of an update's micro-batches
  int64_t slot_bytes_ = 0;  ///< bytes of a copied micro-batch
};

void Pipeline::compile(PlanBuilder& builder, std::span<const int64_t> train_sizes,
                       std::span<const int64_t> eval_sizes) const {
  Plan& plan = builder.plan();
  std::vector<int64_t> lengths = plan.options.row_lengths;
  if (lengths.empty()) lengths.push_back(0);
  const auto shape_of = [](int64_t size, int64_t length) {
    return BatchShape{.num_rows = size, .row_length = length};
  };
  const auto micro_of = [&](BatchShape shape) {
    return builder.compute(Purpose::accumulate, shape, add_up_gradients);
  };
  const auto add_singles = [&](const passes::TrainGraph& micro, BatchShape shape) {
    for (const bool updates : {false, true})
      plan.stage.single_micro.insert_or_assign({shape, updates},
                                               compile_stage(builder, micro, shape, 1, updates));
  };
  const BatchShape whole = shape_of(train_sizes[0], lengths[0]);
  const passes::TrainGraph micro = micro_of(whole);
  plan_stages(builder, micro, whole);
  // All micro-batches of a program have the same shape. With several row lengths, those of an update may
  // differ, so each runs separately.
  plan.stage.num_micro = lengths.size() > 1 ? 1 : plan.options.accumulate;
  plan.step.emplace(whole, compile_stage(builder, micro, whole, plan.stage.num_micro, true));
  add_singles(micro, whole);
  for (const int64_t length : lengths) {
    for (const int64_t size : train_sizes) {
      if (const BatchShape shape = shape_of(size, length); shape != whole)
        add_singles(micro_of(shape), shape);
    }
    for (const int64_t size : eval_sizes) {
      const BatchShape shape = shape_of(size, length);
      if (!plan.evaluate.contains(shape)) plan.evaluate.emplace(shape, compile_evaluation(builder, shape));
    }
  }
}

std::vector<int64_t> Pipeline::stage_parameters(const Plan& plan) const {
  std::vector<int64_t> counts(static_cast<size_t>(plan.options.num_workers), 0);
  for (const nn::Tensor& tensor : plan.tensors) {
    if (tensor.trainable)
      counts[static_cast<size_t>(plan.stage.homes.at(tensor.name))] +=
          tensor.layout.file_shape.num_elements();
  }
  return counts;
}

void Pipeline::open(Runtime& runtime) {
  const Plan& plan = runtime.plan();
  slot_bytes_ = 0;
  for (const int64_t num_bytes : plan.stage.input_bytes.rbegin()->second)
    slot_bytes_ += passes::padded_bytes(num_bytes + kInputSlack);
  inputs_ = exec::Region(slot_bytes_ * plan.options.accumulate);
  for (int64_t i = 0; i < plan.options.accumulate; ++i)
    inverse_samples_.push_back(passes::name_in_micro_batch(i, kInverseSamples));
}

/// Copies micro-batch `index` of an update to inputs_, where it stays valid until the update is done.
MicroBatch Pipeline::copy(const StagePlan& stage, const MicroBatch& batch, int64_t index) {
  MicroBatch copied = batch;
  const std::vector<int64_t>& num_bytes = stage.input_bytes.at(batch.shape());
  std::byte* next = inputs_.data() + index * slot_bytes_;
  for (size_t i = 0; i < num_bytes.size(); ++i) {
    if (num_bytes[i] > 0) std::memcpy(next, batch.arrays[i].data, static_cast<size_t>(num_bytes[i]));
    copied.arrays[i].data = next;
    next += passes::padded_bytes(num_bytes[i] + kInputSlack);
  }
  return copied;
}

/// Returns the program for all micro-batches of an update; null if no program has their number and shape.
const exec::Program* unrolled_program(const Plan& plan, std::span<const MicroBatch> batches) {
  const BatchShape shape = batches.front().shape();
  const auto found = plan.step.find(shape);
  const bool fits = found != plan.step.end() && std::ssize(batches) == plan.stage.num_micro &&
                    std::ranges::all_of(batches, [&](const auto& batch) { return batch.shape() == shape; });
  return fits ? &found->second : nullptr;
}

exec::Executor* Pipeline::start(Runtime& runtime, const Update& update, float* losses) {
  const Plan& plan = runtime.plan();
  const EngineOptions& options = plan.options;
  const Divisors by = divisors(plan, update);
  const int64_t num_micro = update.num_micro;
  batches_.clear();
  for (int64_t i = 0; i < num_micro; ++i) batches_.push_back(copy(plan.stage, update.next(), i));
  const exec::Program* const together = unrolled_program(plan, batches_);
  const int64_t count = together != nullptr ? num_micro : 1;
  exec::Executor* executor = nullptr;
  for (int64_t first = 0; first < num_micro; first += count) {
    const int64_t end = first + count;
    const BatchShape shape = batches_[static_cast<size_t>(first)].shape();
    const exec::Program& program =
        together != nullptr ? *together : plan.stage.single_micro.at({shape, end == num_micro});
    executor = &runtime.executor(program);
    set_scalars(*executor, by, true, update.learning_rate);
    for (int64_t i = first; i < end; ++i) {
      executor->set_scalar(inverse_samples_[static_cast<size_t>(i - first)],
                           static_cast<float>(1.0 / by.num_samples));
      runtime.inputs(program, i - first).bind(batches_[static_cast<size_t>(i)], update.step, i);
    }
    runtime.start(*executor);
    // Outputs are grouped by micro-batch; the first of each group is the loss.
    const std::vector<ValueId>& outputs = executor->graph().outputs;
    const int64_t num_each = std::ssize(outputs) / count;
    for (int64_t i = first; i < end && options.rank + 1 == options.num_workers; ++i)
      executor->read(outputs[static_cast<size_t>((i - first) * num_each)], &losses[i]);
    runtime.beat();
  }
  return executor;
}

void Pipeline::gather_losses(Runtime& runtime, float* losses) {
  const EngineOptions& options = runtime.plan().options;
  const auto last = static_cast<int>(options.num_workers - 1);
  runtime.group()->broadcast(
      std::as_writable_bytes(std::span(losses, static_cast<size_t>(options.accumulate))), last);
}

double Pipeline::evaluate(Runtime& runtime, const MicroBatch& batch) {
  const Plan& plan = runtime.plan();
  const exec::Program& program = plan.evaluate.at(batch.shape());
  exec::Executor& executor = runtime.executor(program);
  runtime.inputs(program, 0).bind(batch, 0, 0);
  runtime.run(executor);
  runtime.group()->check();
  runtime.beat();
  gathered_.clear();
  size_t num_local = 0;
  for (const StagePlan::Output& output : plan.stage.outputs.at(batch.shape())) {
    std::vector<float>& values = gathered_.emplace_back(static_cast<size_t>(output.num_elements));
    if (output.stage == plan.options.rank) {
      const ValueId id = executor.graph().outputs[num_local++];
      std::copy_n(static_cast<const float*>(executor.data(id)), values.size(), values.begin());
    }
    runtime.group()->broadcast(std::as_writable_bytes(std::span(values)), output.stage);
  }
  return plan.has_losses ? gathered_[0][0] : 0;
}

}  // namespace

std::unique_ptr<Strategy> make_pipeline() { return std::make_unique<Pipeline>(); }

}  // namespace hearth::engine
