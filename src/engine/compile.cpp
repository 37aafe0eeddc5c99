#include "engine/compile.h"

#include "base/error.h"
#include "engine/compiler.h"
#include "engine/parallel/strategy.h"

namespace hearth::engine {
namespace {

/// The options with what follows from others.
EngineOptions resolved(EngineOptions options) {
  options.optimizer.dynamic_loss_scale = options.precision == DType::f16;
  if (options.num_workers == 1) {
    options.parallel = Parallel::data;
  } else if (options.local.steps > 1) {
    options.parallel = Parallel::local_sgd;
  }
  return options;
}

void note_facts(Compiled& compiled, const Strategy& strategy) {
  if (!compiled.step.empty()) compiled.flops_per_update = strategy.flops_per_update(compiled);
  compiled.evaluates_together = strategy.evaluates_together();
  compiled.stage_parameters = strategy.stage_parameters(compiled);
}

Compiled compile_with(const EngineOptions& options, std::span<const int64_t> train_sizes,
                      std::span<const int64_t> eval_sizes, const DeviceTrials& trials, bool is_packed) {
  Compiled compiled;
  compiled.options = resolved(options);
  compiled.is_packed = is_packed;
  const std::unique_ptr<Strategy> strategy = make_strategy(compiled.options.parallel);
  HEARTH_CHECK(options.accumulate % options.shards == 0 &&
               options.shards % strategy->num_sharing(compiled.options) == 0);
  Compiler compiler(compiled, *strategy, trials);
  strategy->compile(compiler, train_sizes, eval_sizes);
  note_facts(compiled, *strategy);
  return compiled;
}

}  // namespace

Compiled compile(const EngineOptions& options, std::span<const int64_t> train_sizes,
                 std::span<const int64_t> eval_sizes, const DeviceTrials& trials) {
  return compile_with(options, train_sizes, eval_sizes, trials, true);
}

Compiled measure(const EngineOptions& options, std::span<const int64_t> train_sizes,
                 std::span<const int64_t> eval_sizes) {
  return compile_with(options, train_sizes, eval_sizes, {}, false);
}

void place_again(Compiled& measured, const passes::OffloadOptions& offload, int64_t budget_bytes) {
  HEARTH_CHECK(!measured.is_packed && measured.step.size() == 1 && measured.evaluate.empty());
  measured.options.offload = offload;
  measured.options.budget_bytes = budget_bytes;
  *measured.layout = {};
  measured.arena_bytes = measured.host_arena_bytes = 0;
  measured.recompute = {};
  const std::unique_ptr<Strategy> strategy = make_strategy(measured.options.parallel);
  Compiler compiler(measured, *strategy, {});
  auto next = measured.computed.begin();
  const auto place = [&] {
    const ComputedGraph& computed = *next++;
    return compiler.place(computed.train, computed.purpose, computed.workspace_bytes);
  };
  for (Programs* programs : {&measured.step, &measured.accumulate}) {
    for (auto& [shape, program] : *programs) program = place();
  }
  for (Level& level : measured.levels) {
    level.put_away = place();
    level.add = place();
  }
  if (measured.outer) measured.outer = place();
  note_facts(measured, *strategy);
}

exec::Program compile_gradients(Compiled& compiled, BatchShape shape, const DeviceTrials& trials) {
  const std::unique_ptr<Strategy> strategy = make_strategy(compiled.options.parallel);
  Compiler compiler(compiled, *strategy, trials);
  return compiler.finish(compiler.build_graph(Purpose::gradients, shape), Purpose::gradients);
}

}  // namespace hearth::engine
