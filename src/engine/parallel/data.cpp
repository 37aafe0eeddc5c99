// Data parallelism: every worker computes its share of the micro-batches, and all workers make the same
// update of the same weights. A single worker is rank 0 of 1.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "engine/graph_builder.h"
#include "engine/parallel/strategy.h"
#include "engine/plan_builder.h"
#include "engine/runtime.h"
#include "ir/state_name.h"

namespace hearth::engine {
namespace {

/// Combines the gradient sums of this worker's shard `number` with those of its earlier shards. Not for the
/// last shard, whose program does so itself.
void finish_shard(Runtime& runtime, int64_t number) {
  const std::vector<ShardLevel>& levels = runtime.plan().levels;
  size_t level = 0;
  for (; (number >> level & 1) != 0; ++level) runtime.start(runtime.executor(levels[level].add));
  runtime.start(runtime.executor(levels[level].save));
}

}  // namespace

data::LoaderShare Strategy::share(const EngineOptions& options) const {
  const int64_t count = num_local_micro(options);
  return {.group = options.accumulate,
          .first = num_sharing(options) == 1 ? 0 : options.rank * count,
          .count = count};
}

void Strategy::compile(PlanBuilder& builder, std::span<const int64_t> train_sizes,
                       std::span<const int64_t> eval_sizes) const {
  Plan& plan = builder.plan();
  builder.compile_all(Purpose::step, train_sizes, plan.step);
  if (num_local_micro(plan.options) > 1)
    builder.compile_all(Purpose::accumulate, train_sizes, plan.accumulate);
  builder.compile_all(Purpose::evaluate, eval_sizes, plan.evaluate);
  for (int level = 0; level < sums(plan).num_levels; ++level) {
    const ir::Graph& names = plan.train_program().graph;
    plan.levels.push_back({.save = builder.finish(make_move_graph(names, 0, level + 1), Purpose::step),
                           .add = builder.finish(make_move_graph(names, level + 1, 0), Purpose::step)});
  }
  if (!plan.pruned.empty()) {
    plan.prune = builder.finish(make_prune_graph(plan.train_program().graph, plan.pruned, plan.options.prune),
                                Purpose::step);
  }
}

void Strategy::begin_graph(Plan&, const passes::TrainGraph&, Purpose, passes::PassContext&) const {}

void Strategy::end_graph(ir::Graph&, size_t) const {}

SumOptions Strategy::sums(const Plan& plan) const {
  const EngineOptions& options = plan.options;
  const auto local = static_cast<uint64_t>(num_local_shards(options));
  HEARTH_CHECK(std::has_single_bit(local));
  return {.num_micro = options.accumulate,
          .has_earlier = num_local_micro(options) > 1,
          .num_levels = std::countr_zero(local),
          .rank = options.rank,
          .num_workers = static_cast<int>(options.num_workers)};
}

void Strategy::add_local_states(const EngineOptions& options, ir::Graph& graph) const {
  if (options.num_workers == 1) return;
  add_states_of_workers(graph, static_cast<int>(options.num_workers), [](const ir::Value& value) {
    return ir::parse_state_name(value.name).kind == ir::StateKind::error;
  });
}

double Strategy::flops_per_update(const Plan& plan) const {
  const auto num_steps = static_cast<double>(plan.options.num_workers);
  const exec::Program* earlier = plan.accumulate_program();
  return num_steps * plan.train_program().report.flops +
         (static_cast<double>(plan.options.accumulate) - num_steps) *
             (earlier == nullptr ? 0 : earlier->report.flops);
}

std::vector<int64_t> Strategy::stage_parameters(const Plan&) const { return {}; }

void Strategy::open(Runtime&) {}

Divisors Strategy::divisors(const Plan&, const Update& update) const {
  return {.num_micro = update.num_micro, .num_samples = static_cast<double>(update.num_samples)};
}

exec::Executor* Strategy::start(Runtime& runtime, const Update& update, float* losses) {
  const Plan& plan = runtime.plan();
  const EngineOptions& options = plan.options;
  const Divisors by = divisors(plan, update);
  const data::LoaderShare local = share(options);
  const int64_t shard_size = options.accumulate / options.shards;
  // Index of the micro-batch whose program also updates the weights; -1: none. With several shards it is
  // always the last one of a full update, so that sums keep their order; with one shard, the last one that
  // this update has.
  const int64_t last = by.num_micro == 0     ? -1
                       : options.shards == 1 ? std::min(local.count, update.num_micro) - 1
                                             : local.count - 1;
  exec::Executor* started = nullptr;
  for (int64_t k = 0; k <= last; ++k) {
    const int64_t i = local.first + k;
    const bool is_present = i < update.num_micro;
    if (is_present || k == last || exchanges_every_micro()) {
      const MicroBatch batch = is_present ? update.next() : runtime.idle_batch();
      const exec::Program& program = (k == last ? plan.step : plan.accumulate).at(batch.shape());
      exec::Executor& executor = runtime.executor(program);
      set_scalars(executor, by, is_present, update.learning_rate);
      runtime.inputs(program).bind(batch, update.step, i);
      runtime.start(executor);
      executor.read(executor.graph().outputs[kLossSum], &losses[i]);
      runtime.beat();
      started = &executor;
    }
    if (k < last && (k + 1) % shard_size == 0) finish_shard(runtime, k / shard_size);
  }
  return started;
}

double Strategy::global_norm(Runtime&, double norm) const { return norm; }

void Strategy::gather_losses(Runtime& runtime, float* losses) {
  const data::LoaderShare local = share(runtime.plan().options);
  local_losses_.assign(losses + local.first, losses + local.first + local.count);
  runtime.group()->all_gather(std::as_bytes(std::span(local_losses_)),
                              std::as_writable_bytes(std::span(losses, static_cast<size_t>(local.group))));
}

void Strategy::stage_ahead(Runtime& runtime, const MicroBatch& batch) {
  const Plan& plan = runtime.plan();
  const exec::Program& program = (plan.accumulate.empty() ? plan.step : plan.accumulate).at(batch.shape());
  exec::Executor& executor = runtime.executor(program);
  runtime.inputs(program).bind(batch);
  executor.stage_ahead();
}

double Strategy::evaluate(Runtime& runtime, const MicroBatch& batch) {
  const Plan& plan = runtime.plan();
  const exec::Program& program = plan.evaluate.at(batch.shape());
  exec::Executor& executor = runtime.executor(program);
  runtime.inputs(program).bind(batch, 0, 0);
  runtime.run(executor);
  if (runtime.group() != nullptr) runtime.group()->check();
  runtime.beat();
  evaluated_ = &executor;
  return plan.has_losses ? output(kLossSum)[0] : 0;
}

std::span<const float> Strategy::output(size_t index) const {
  HEARTH_CHECK(evaluated_ != nullptr);
  const ir::ValueId id = evaluated_->graph().outputs.at(index);
  return {static_cast<const float*>(evaluated_->data(id)),
          static_cast<size_t>(evaluated_->graph().type(id).shape.num_elements())};
}

void Strategy::outer_step(Runtime&) {}

std::unique_ptr<Strategy> make_data() { return std::make_unique<Strategy>(); }

}  // namespace hearth::engine
