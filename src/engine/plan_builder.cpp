#include "engine/plan_builder.h"

#include <algorithm>

#include "base/error.h"
#include "engine/graph_builder.h"
#include "engine/parallel/strategy.h"
#include "ir/text.h"

namespace hearth::engine {
namespace {

using ir::ValueId;

/// Returns a key that is equal for nodes with equal kernels: op, attributes, and input dtypes and shapes.
std::string kernel_key(const ir::Graph& graph, const ir::Node& node) {
  std::string key(node.op->name);
  const auto append = [&](int64_t number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  for (const ValueId in : node.inputs) {
    append(in == ir::kNone ? -1 : static_cast<int64_t>(graph.type(in).dtype));
    if (in == ir::kNone) continue;
    append(graph.type(in).shape.rank());
    for (const int64_t size : graph.type(in).shape) append(size);
  }
  return key + ir::print(node.attrs);
}

/// Fills in options that follow from other options.
EngineOptions resolved(EngineOptions options) {
  options.optimizer.dynamic_loss_scale = options.precision == DType::f16;
  if (options.num_workers == 1) {
    options.parallel = Parallel::data;
  } else if (options.local.steps > 1) {
    options.parallel = Parallel::local_sgd;
  }
  return options;
}

void add_facts(Plan& plan, const Strategy& strategy) {
  if (!plan.step.empty()) plan.flops_per_update = strategy.flops_per_update(plan);
  plan.evaluates_jointly = strategy.evaluates_jointly();
  plan.stage_parameters = strategy.stage_parameters(plan);
}

Plan plan_with(const EngineOptions& options, std::span<const int64_t> train_sizes,
               std::span<const int64_t> eval_sizes, const DeviceChecks& checks, bool is_packed) {
  Plan plan;
  plan.options = resolved(options);
  plan.is_packed = is_packed;
  const std::unique_ptr<Strategy> strategy = make_strategy(plan.options.parallel);
  HEARTH_CHECK(options.accumulate % options.shards == 0 &&
               options.shards % strategy->num_sharing(plan.options) == 0);
  PlanBuilder builder(plan, *strategy, checks);
  strategy->compile(builder, train_sizes, eval_sizes);
  add_facts(plan, *strategy);
  return plan;
}

}  // namespace

Plan make_plan(const EngineOptions& options, std::span<const int64_t> train_sizes,
               std::span<const int64_t> eval_sizes, const DeviceChecks& checks) {
  return plan_with(options, train_sizes, eval_sizes, checks, true);
}

Plan measure_plan(const EngineOptions& options, std::span<const int64_t> train_sizes,
                  std::span<const int64_t> eval_sizes) {
  return plan_with(options, train_sizes, eval_sizes, {}, false);
}

void replan(Plan& measured, const passes::OffloadOptions& offload, int64_t budget_bytes) {
  HEARTH_CHECK(!measured.is_packed && measured.step.size() == 1 && measured.evaluate.empty());
  measured.options.offload = offload;
  measured.options.budget_bytes = budget_bytes;
  *measured.layout = {};
  measured.arena_bytes = measured.host_arena_bytes = 0;
  measured.encoded = {};
  measured.recompute = {};
  const std::unique_ptr<Strategy> strategy = make_strategy(measured.options.parallel);
  PlanBuilder builder(measured, *strategy, {});
  auto next = measured.computed.begin();
  const auto place = [&] {
    const ComputedGraph& computed = *next++;
    return builder.place(computed.train, computed.purpose, computed.workspace_bytes);
  };
  for (Programs* programs : {&measured.step, &measured.accumulate}) {
    for (auto& [shape, program] : *programs) program = place();
  }
  for (ShardLevel& level : measured.levels) {
    level.save = place();
    level.add = place();
  }
  if (measured.prune) measured.prune = place();
  if (measured.outer) measured.outer = place();
  add_facts(measured, *strategy);
}

exec::Program compile_gradients(Plan& plan, BatchShape shape, const DeviceChecks& checks) {
  const std::unique_ptr<Strategy> strategy = make_strategy(plan.options.parallel);
  PlanBuilder builder(plan, *strategy, checks);
  return builder.finish(build_graph(plan, Purpose::gradients, shape), Purpose::gradients);
}

PlanBuilder::PlanBuilder(Plan& plan, const Strategy& strategy, const DeviceChecks& checks)
    : plan_(plan), strategy_(strategy), checks_(checks) {
  if (options().backend == exec::Backend::gpu) driver_ = &exec::driver_of(options().gpu.device);
}

void PlanBuilder::compile_all(Purpose purpose, std::span<const int64_t> sizes, Programs& programs) {
  std::vector<int64_t> lengths = options().row_lengths;
  if (lengths.empty()) lengths.push_back(0);
  for (const int64_t length : lengths) {
    for (const int64_t size : sizes) {
      const BatchShape shape{.num_rows = size, .row_length = length};
      if (!programs.contains(shape))
        programs.emplace(shape, finish(build_graph(plan_, purpose, shape), purpose));
    }
  }
}

passes::PassContext PlanBuilder::context_of(const passes::TrainGraph& train) {
  passes::PassContext context{.precision = options().precision,
                              .budget_bytes = options().budget_bytes,
                              .offload = options().offload,
                              .device = options().device,
                              .cuts_stages = options().parallel == Parallel::pipeline};
  context.all_reduce.through_host = options().backend == exec::Backend::gpu && !options().reduces_on_gpu;
  context.all_reduce.on_gpu = options().reduces_on_gpu;
  context.all_reduce.rank = options().rank;
  context.compress = options().compress;
  context.off = options().passes_off;
  context.after_pass = options().after_pass;
  context.workspace_of = [this, &train](const ir::Node& node) {
    const auto [found, added] = workspace_cache_.try_emplace(kernel_key(train.graph, node), 0);
    if (added) {
      found->second = exec::workspace_bytes(train.graph, node,
                                            {.backend = options().backend,
                                             .driver = driver_,
                                             .num_threads = options().num_threads,
                                             .winograd = options().winograd});
    }
    return found->second;
  };
  return context;
}

passes::TrainGraph PlanBuilder::compute(Purpose purpose, BatchShape shape,
                                        std::function<void(passes::TrainGraph&)> consume_gradients) {
  passes::TrainGraph train = build_graph(plan_, purpose, shape);
  passes::PassContext context = context_of(train);
  context.consume_gradients = std::move(consume_gradients);
  passes::run_passes(train, context, passes::Stage::compute);
  return train;
}

exec::Program PlanBuilder::finish(passes::TrainGraph train, Purpose purpose) {
  passes::PassContext context = context_of(train);
  const bool updating = train.losses == ir::kNone;
  strategy_.begin_graph(plan_, train, purpose, context);
  if (purpose == Purpose::step && !updating) {
    context.consume_gradients = [this](passes::TrainGraph& graph) {
      const size_t first = graph.graph.nodes.size();
      add_update(graph, options().optimizer, plan_.tables, plan_.statistics, strategy_.sums(plan_),
                 {.method = options().prune.method, .weights = plan_.pruned});
      strategy_.end_graph(graph.graph, first);
    };
  } else if (purpose == Purpose::accumulate) {
    context.consume_gradients = [this](passes::TrainGraph& graph) {
      const size_t first = graph.graph.nodes.size();
      add_accumulation(graph, plan_.statistics, strategy_.exchanges_every_micro());
      strategy_.end_graph(graph.graph, first);
    };
  } else if (purpose == Purpose::gradients) {
    context.consume_gradients = [](passes::TrainGraph& graph) {
      for (const passes::Gradient& gradient : graph.gradients)
        graph.graph.outputs.push_back(gradient.gradient);
    };
  }
  passes::run_passes(train, context, passes::Stage::compute);
  return finish_computed(train, purpose, context);
}

exec::Program PlanBuilder::finish_computed(passes::TrainGraph& train, Purpose purpose) {
  passes::PassContext context = context_of(train);
  return finish_computed(train, purpose, context);
}

exec::Program PlanBuilder::finish_computed(passes::TrainGraph& train, Purpose purpose,
                                           passes::PassContext& context) {
  passes::run_passes(train, context, passes::Stage::exchange);
  if (purpose == Purpose::step && train.losses != ir::kNone)
    strategy_.add_local_states(options(), train.graph);
  if (checks_.matmuls != nullptr) checks_.matmuls->choose(train.graph);
  if (!plan_.is_packed) keep_computed(train, purpose, context.workspace_of);
  return place(train, purpose);
}

void PlanBuilder::keep_computed(const passes::TrainGraph& train, Purpose purpose,
                                const passes::WorkspaceOf& workspace_of) {
  std::vector<int64_t> workspace_bytes(train.graph.values.size(), -1);
  for (const ir::Node& node : train.graph.nodes)
    workspace_bytes[static_cast<size_t>(node.outputs.front())] = workspace_of(node);
  plan_.computed.push_back(
      {.train = train, .purpose = purpose, .workspace_bytes = std::move(workspace_bytes)});
}

PlanBuilder::Placed PlanBuilder::place_within(passes::TrainGraph train,
                                              const std::vector<int64_t>& workspace_bytes,
                                              int64_t budget_bytes) {
  passes::PassContext context = context_of(train);
  context.budget_bytes = budget_bytes;
  context.workspace_of = [&, measure = context.workspace_of](const ir::Node& node) {
    // The recompute pass may have changed this node's attributes to shrink its workspace, so the size is
    // computed again.
    if (node.op->smaller != nullptr) return measure(node);
    const auto first = static_cast<size_t>(node.outputs.front());
    return first < workspace_bytes.size() && workspace_bytes[first] >= 0 ? workspace_bytes[first]
                                                                         : measure(node);
  };
  passes::run_passes(train, context, passes::Stage::place);
  context.recompute.fits = context.recompute.peak_after_bytes <= options().budget_bytes;
  exec::CompileOptions compile{.backend = options().backend,
                               .driver = driver_,
                               .num_threads = options().num_threads,
                               .winograd = options().winograd,
                               .device = options().device,
                               .pack = plan_.is_packed};
  if (checks_.kernels != nullptr) {
    checks_.kernels->cover(train.graph);
    compile.trusts = [kernels = checks_.kernels](const ir::OpDef& op, const ir::NodeView& view) {
      return kernels->trusts(op, view);
    };
  }
  for (const passes::Gradient& gradient : train.gradients) compile.gradients.push_back(gradient.gradient);
  plan_.layout->add(train.graph);
  return {.program = exec::compile(std::move(train.graph), *plan_.layout, compile),
          .encoded = context.encoded,
          .recompute = context.recompute};
}

exec::Program PlanBuilder::place(const passes::TrainGraph& train, Purpose purpose,
                                 const std::vector<int64_t>& workspace_bytes) {
  Placed best = place_within(train, workspace_bytes, options().budget_bytes);
  // If packing leaves gaps, slightly different budgets recompute other values, which may pack better.
  const auto bound = static_cast<double>(best.program.report.bound_bytes);
  for (const double factor : {1.01, 1.02, 1.03}) {
    const exec::ArenaReport& report = best.program.report;
    if (best.recompute.num_recomputed == 0 ||
        report.height_bytes <= report.bound_bytes + report.bound_bytes / 100)
      break;
    Placed next = place_within(train, workspace_bytes, static_cast<int64_t>(factor * bound));
    if (next.program.arena_bytes() < best.program.arena_bytes()) best = std::move(next);
  }
  if (purpose == Purpose::step || purpose == Purpose::accumulate) {
    if (best.encoded.full_bytes > plan_.encoded.full_bytes) plan_.encoded = best.encoded;
    if (best.recompute.peak_before_bytes > plan_.recompute.peak_before_bytes)
      plan_.recompute = best.recompute;
  }
  plan_.arena_bytes = std::max(plan_.arena_bytes, best.program.arena_bytes());
  plan_.host_arena_bytes = std::max(plan_.host_arena_bytes, best.program.report.host_bytes);
  return std::move(best.program);
}

}  // namespace hearth::engine
