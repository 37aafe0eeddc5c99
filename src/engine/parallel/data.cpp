// Every worker computes its own micro-batches, and all of them make the same update of the same weights. A
// single worker is the first of one.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "engine/parallel/strategy.h"
#include "engine/plan_builder.h"
#include "engine/runtime.h"
#include "ir/state_name.h"

namespace hearth::engine {

data::LoaderShare Strategy::share(const EngineOptions& options) const {
  const int64_t count = num_own_micro(options);
  return {.group = options.accumulate,
          .first = num_sharing(options) == 1 ? 0 : options.rank * count,
          .count = count};
}

void Strategy::compile(PlanBuilder& builder, std::span<const int64_t> train_sizes,
                       std::span<const int64_t> eval_sizes) const {
  Plan& plan = builder.plan();
  builder.compile_all(Purpose::step, train_sizes, plan.step);
  if (num_own_micro(plan.options) > 1) builder.compile_all(Purpose::accumulate, train_sizes, plan.accumulate);
  builder.compile_all(Purpose::evaluate, eval_sizes, plan.evaluate);
  for (int level = 0; level < sums(plan).num_levels; ++level) {
    const ir::Graph& names = plan.train_program().graph;
    plan.levels.push_back({.save = builder.finish(make_move_graph(names, 0, level + 1), Purpose::step),
                           .add = builder.finish(make_move_graph(names, level + 1, 0), Purpose::step)});
  }
}

void Strategy::begin_graph(Plan&, const passes::TrainGraph&, Purpose, passes::PassContext&) const {}

void Strategy::end_graph(ir::Graph&, size_t) const {}

SumOptions Strategy::sums(const Plan& plan) const {
  const EngineOptions& options = plan.options;
  const auto own = static_cast<uint64_t>(num_own_shards(options));
  HEARTH_CHECK(std::has_single_bit(own));
  return {.num_micro = options.accumulate,
          .has_earlier = num_own_micro(options) > 1,
          .num_levels = std::countr_zero(own),
          .rank = options.rank,
          .num_workers = static_cast<int>(options.num_workers)};
}

void Strategy::add_own_places(const EngineOptions& options, ir::Graph& graph) const {
  if (options.num_workers == 1) return;
  add_places_of_workers(graph, static_cast<int>(options.num_workers), [](const ir::Value& value) {
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

Part Strategy::part_of(const Runtime&, const Update& update) const {
  return {.num_micro = update.num_micro, .num_samples = static_cast<double>(update.num_samples)};
}

exec::Executor* Strategy::start(Runtime& runtime, const Update& update, float* losses) {
  const Plan& plan = *runtime.plan;
  const EngineOptions& options = plan.options;
  const Part part = part_of(runtime, update);
  const data::LoaderShare own = share(options);
  const int64_t shard_size = options.accumulate / options.shards;
  // Where sums have no shape to keep, the last micro-batch that there is makes the update.
  const int64_t last = part.num_micro == 0   ? -1
                       : options.shards == 1 ? std::min(own.count, update.num_micro) - 1
                                             : own.count - 1;
  exec::Executor* started = nullptr;
  for (int64_t k = 0; k <= last; ++k) {
    const int64_t i = own.first + k;
    const bool is_present = i < update.num_micro;
    if (is_present || k == last || meets_in_every_micro()) {
      const MicroBatch batch = is_present ? update.next() : runtime.idle_batch;
      const Programs& programs = k == last ? plan.step : plan.accumulate;
      exec::Executor& executor = runtime.executor(programs.at(batch.shape()));
      set_scalars(executor, part, is_present, update.learning_rate);
      runtime.bind_inputs(executor, batch, update.step, i);
      executor.start(runtime.threads);
      executor.read(executor.graph().outputs[kLossSum], &losses[i]);
      runtime.heartbeat.beat();
      started = &executor;
    }
    if (k < last && (k + 1) % shard_size == 0) runtime.finish_shard(k / shard_size);
  }
  return started;
}

double Strategy::norm_of_all(Runtime&, double norm) const { return norm; }

void Strategy::gather_losses(Runtime& runtime, float* losses) {
  const data::LoaderShare own = share(runtime.plan->options);
  std::vector<float>& mine = runtime.own_losses;
  std::copy_n(losses + own.first, own.count, mine.begin());
  runtime.group->all_gather(std::as_bytes(std::span(mine)),
                            std::as_writable_bytes(std::span(losses, static_cast<size_t>(own.group))));
}

void Strategy::stage_ahead(Runtime& runtime, const MicroBatch& batch) {
  const Plan& plan = *runtime.plan;
  const Programs& programs = plan.accumulate.empty() ? plan.step : plan.accumulate;
  exec::Executor& executor = runtime.executor(programs.at(batch.shape()));
  runtime.bind_inputs(executor, batch, runtime.counter[0], runtime.counter[1]);
  executor.stage_ahead();
}

double Strategy::evaluate(Runtime& runtime, const MicroBatch& batch) {
  exec::Executor& executor = runtime.executor(runtime.plan->evaluate.at(batch.shape()));
  runtime.bind_inputs(executor, batch, 0, 0);
  runtime.run(executor);
  if (runtime.group != nullptr) runtime.group->check();
  runtime.heartbeat.beat();
  runtime.evaluated = &executor;
  return runtime.plan->has_losses ? scalar_output(executor, kLossSum) : 0;
}

std::span<const float> Strategy::output(const Runtime& runtime, size_t place) const {
  HEARTH_CHECK(runtime.evaluated != nullptr);
  const exec::Executor& executor = *runtime.evaluated;
  const ir::ValueId id = executor.graph().outputs.at(place);
  return {static_cast<const float*>(executor.data(id)),
          static_cast<size_t>(executor.graph().type(id).shape.num_elements())};
}

void Strategy::move_together(Runtime&) {}

std::unique_ptr<Strategy> make_data() { return std::make_unique<Strategy>(); }

}  // namespace hearth::engine
