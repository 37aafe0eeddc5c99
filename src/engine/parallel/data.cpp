// Every worker computes its own micro-batches, and all of them make the same update of the same weights. A
// single worker is the first of one.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "engine/compiler.h"
#include "engine/parallel/strategy.h"
#include "engine/running.h"
#include "ir/state_name.h"

namespace hearth::engine {

data::LoaderShare Strategy::share(const EngineOptions& options) const {
  const int64_t count = num_own_micro(options);
  return {.group = options.accumulate,
          .first = num_sharing(options) == 1 ? 0 : options.rank * count,
          .count = count};
}

void Strategy::compile(Compiler& compiler, std::span<const int64_t> train_sizes,
                       std::span<const int64_t> eval_sizes) const {
  Compiled& compiled = compiler.compiled;
  compiler.compile_all(Purpose::step, train_sizes, compiled.step);
  if (num_own_micro(compiled.options) > 1)
    compiler.compile_all(Purpose::accumulate, train_sizes, compiled.accumulate);
  compiler.compile_all(Purpose::evaluate, eval_sizes, compiled.evaluate);
  for (int level = 0; level < sums(compiled).num_levels; ++level) {
    const ir::Graph& names = compiled.train_program().graph;
    compiled.levels.push_back(
        {.put_away = compiler.finish(make_move_graph(names, 0, level + 1), Purpose::step),
         .add = compiler.finish(make_move_graph(names, level + 1, 0), Purpose::step)});
  }
}

void Strategy::begin_graph(Compiled&, const passes::TrainGraph&, Purpose, passes::PassContext&) const {}

void Strategy::end_graph(ir::Graph&, size_t) const {}

SumOptions Strategy::sums(const Compiled& compiled) const {
  const EngineOptions& options = compiled.options;
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

double Strategy::flops_per_update(const Compiled& compiled) const {
  const auto num_steps = static_cast<double>(compiled.options.num_workers);
  const exec::Program* earlier = compiled.accumulate_program();
  return num_steps * compiled.train_program().report.flops +
         (static_cast<double>(compiled.options.accumulate) - num_steps) *
             (earlier == nullptr ? 0 : earlier->report.flops);
}

std::vector<int64_t> Strategy::stage_parameters(const Compiled&) const { return {}; }

void Strategy::open(Running&) {}

Part Strategy::part_of(const Running&, const Update& update) const {
  return {.num_micro = update.num_micro, .num_samples = static_cast<double>(update.num_samples)};
}

exec::Executor* Strategy::start(Running& running, const Update& update, float* losses) {
  const Compiled& compiled = *running.compiled;
  const EngineOptions& options = compiled.options;
  const Part part = part_of(running, update);
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
      const MicroBatch batch = is_present ? update.next() : running.idle_batch;
      const Programs& programs = k == last ? compiled.step : compiled.accumulate;
      exec::Executor& executor = running.executor(programs.at(batch.shape()));
      set_scalars(executor, part, is_present, update.learning_rate);
      running.bind_inputs(executor, batch, update.step, i);
      executor.start(running.threads);
      executor.read(executor.graph().outputs[kLossSum], &losses[i]);
      running.heartbeat.beat();
      started = &executor;
    }
    if (k < last && (k + 1) % shard_size == 0) running.finish_shard(k / shard_size);
  }
  return started;
}

double Strategy::norm_of_all(Running&, double norm) const { return norm; }

void Strategy::gather_losses(Running& running, float* losses) {
  const data::LoaderShare own = share(running.compiled->options);
  std::vector<float>& mine = running.own_losses;
  std::copy_n(losses + own.first, own.count, mine.begin());
  running.group->all_gather(std::as_bytes(std::span(mine)),
                            std::as_writable_bytes(std::span(losses, static_cast<size_t>(own.group))));
}

void Strategy::stage_ahead(Running& running, const MicroBatch& batch) {
  const Compiled& compiled = *running.compiled;
  const Programs& programs = compiled.accumulate.empty() ? compiled.step : compiled.accumulate;
  exec::Executor& executor = running.executor(programs.at(batch.shape()));
  running.bind_inputs(executor, batch, running.counter[0], running.counter[1]);
  executor.stage_ahead();
}

double Strategy::evaluate(Running& running, const MicroBatch& batch) {
  exec::Executor& executor = running.executor(running.compiled->evaluate.at(batch.shape()));
  running.bind_inputs(executor, batch, 0, 0);
  running.run(executor);
  if (running.group != nullptr) running.group->check();
  running.heartbeat.beat();
  running.evaluated = &executor;
  return running.compiled->has_losses ? scalar_output(executor, kLossSum) : 0;
}

std::span<const float> Strategy::output(const Running& running, size_t place) const {
  HEARTH_CHECK(running.evaluated != nullptr);
  const exec::Executor& executor = *running.evaluated;
  const ir::ValueId id = executor.graph().outputs.at(place);
  return {static_cast<const float*>(executor.data(id)),
          static_cast<size_t>(executor.graph().type(id).shape.num_elements())};
}

void Strategy::move_together(Running&) {}

std::unique_ptr<Strategy> make_data() { return std::make_unique<Strategy>(); }

}  // namespace hearth::engine
