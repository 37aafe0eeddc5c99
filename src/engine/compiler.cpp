#include "engine/compiler.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "engine/micro_batch.h"
#include "engine/parallel/strategy.h"
#include "ir/state_name.h"
#include "ir/text.h"
#include "ops/op_list.h"

namespace hearth::engine {
namespace {

using ir::ValueId;

/// A key that is equal for nodes whose kernels are equal.
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

/// Weights and running statistics become their averages.
void use_average(ir::Graph& graph, std::span<const nn::Tensor> tensors) {
  for (const nn::Tensor& tensor : tensors) {
    ir::Value& value = graph.value(tensor.value);
    if (value.role == ir::Role::parameter || tensor.is_moving)
      value.name = ir::spell(ir::StateKind::average, value.name);
  }
  for (ir::Value& value : graph.values)
    if (value.role == ir::Role::parameter) value.role = ir::Role::state;
}

/// Names that nothing has would be passed over in silence.
void check_module(const char* key, const std::string& module, std::span<const nn::Tensor> tensors) {
  std::vector<std::string> names;
  for (const nn::Tensor& tensor : tensors) {
    if (nn::is_under(tensor.name, module)) return;
    const std::string name = tensor.name.substr(0, tensor.name.find('.'));
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  user_error("expected modules of the model in {} ({}, or parts of them), got '{}'{}", key,
             fmt::join(names, ", "), module, did_you_mean(module, names));
}

void check_modules(const EngineOptions& options, std::span<const nn::Tensor> tensors) {
  for (const std::string& module : options.frozen) check_module("train.freeze", module, tensors);
  for (const auto& [module, factor] : options.optimizer.rates)
    check_module("optimizer.rates", module, tensors);
  if (!options.frozen.empty() && std::ranges::none_of(tensors, &nn::Tensor::trainable))
    user_error("expected a weight that train.freeze leaves to train, got none");
}

}  // namespace

void Compiler::compile_all(Purpose purpose, std::span<const int64_t> sizes, Programs& programs) {
  std::vector<int64_t> lengths = options().row_lengths;
  if (lengths.empty()) lengths.push_back(0);
  for (const int64_t length : lengths) {
    for (const int64_t size : sizes) {
      const BatchShape shape{.num_rows = size, .row_length = length};
      if (!programs.contains(shape)) programs.emplace(shape, finish(build_graph(purpose, shape), purpose));
    }
  }
}

passes::TrainGraph Compiler::build_graph(Purpose purpose, BatchShape shape) {
  passes::TrainGraph train;
  const auto mode = purpose == Purpose::evaluate ? nn::Builder::Mode::eval : nn::Builder::Mode::train;
  nn::Builder builder(train.graph, mode, options().seed, options().adapter);
  builder.freeze(options().frozen);
  const Objective::Graph built = options().objective->build(builder, shape);
  builder.check_adapter();
  check_modules(options(), builder.tensors());
  train.losses = built.losses;
  compiled.has_losses = built.losses != ir::kNone;
  if (compiled.has_losses)
    train.graph.outputs.push_back(train.graph.add1(*ops::find_op("sum_all"), {built.losses}, {}, "loss"));
  train.graph.outputs.insert(train.graph.outputs.end(), built.outputs.begin(), built.outputs.end());
  if (compiled.tensors.empty()) {
    compiled.tensors = builder.tensors();
    for (const nn::Tensor& tensor : compiled.tensors) {
      if (tensor.is_table) compiled.tables.push_back(tensor.name);
    }
    for (const ValueId input : built.inputs) compiled.input_names.push_back(train.graph.value(input).name);
    HEARTH_CHECK(compiled.input_names.size() <= MicroBatch{}.inputs.size());
  }
  if (purpose == Purpose::evaluate) {
    if (options().optimizer.ema_decay > 0) use_average(train.graph, builder.tensors());
  } else {
    train.loss_weight = add_loss_weight(train.graph, options().optimizer);
  }
  const bool trains = purpose == Purpose::step || purpose == Purpose::accumulate;
  if (trains && options().shards > 1) compiled.statistics = take_statistics(train.graph);
  return train;
}

passes::PassContext Compiler::context_of(const passes::TrainGraph& train) {
  passes::PassContext context{.precision = options().precision,
                              .budget_bytes = options().budget_bytes,
                              .offload = options().offload,
                              .device = options().device};
  context.all_reduce.through_host = options().backend == exec::Backend::gpu && !options().meets_on_gpu;
  context.all_reduce.on_gpu = options().meets_on_gpu;
  context.all_reduce.rank = options().rank;
  context.compress = options().compress;
  context.off = options().passes_off;
  context.after_pass = options().after_pass;
  context.workspace_of = [this, &train](const ir::Node& node) {
    const auto [found, added] = workspace_cache_.try_emplace(kernel_key(train.graph, node), 0);
    if (added) {
      found->second = exec::workspace_bytes(
          train.graph, node,
          {.backend = options().backend, .driver = driver_, .num_threads = options().num_threads});
    }
    return found->second;
  };
  return context;
}

passes::TrainGraph Compiler::compute(Purpose purpose, BatchShape shape,
                                     std::function<void(passes::TrainGraph&)> consume_gradients) {
  passes::TrainGraph train = build_graph(purpose, shape);
  passes::PassContext context = context_of(train);
  context.consume_gradients = std::move(consume_gradients);
  passes::run_passes(train, context, passes::Stage::compute);
  return train;
}

exec::Program Compiler::finish(passes::TrainGraph train, Purpose purpose) {
  passes::PassContext context = context_of(train);
  const bool updating = train.losses == ir::kNone;
  strategy_.begin_graph(compiled, train, purpose, context);
  if (purpose == Purpose::step && !updating) {
    context.consume_gradients = [this](passes::TrainGraph& graph) {
      const size_t first = graph.graph.nodes.size();
      add_update(graph, options().optimizer, compiled.tables, compiled.statistics, strategy_.sums(compiled));
      strategy_.end_graph(graph.graph, first);
    };
  } else if (purpose == Purpose::accumulate) {
    context.consume_gradients = [this](passes::TrainGraph& graph) {
      const size_t first = graph.graph.nodes.size();
      add_accumulation(graph, compiled.statistics, strategy_.meets_in_every_micro());
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

exec::Program Compiler::finish_computed(passes::TrainGraph& train, Purpose purpose) {
  passes::PassContext context = context_of(train);
  return finish_computed(train, purpose, context);
}

exec::Program Compiler::finish_computed(passes::TrainGraph& train, Purpose purpose,
                                        passes::PassContext& context) {
  passes::run_passes(train, context, passes::Stage::exchange);
  if (purpose == Purpose::step && train.losses != ir::kNone) strategy_.add_own_places(options(), train.graph);
  if (trials_.matmuls != nullptr) trials_.matmuls->choose(train.graph);
  if (!compiled.is_packed) keep_computed(train, purpose, context.workspace_of);
  return place(train, purpose);
}

void Compiler::keep_computed(const passes::TrainGraph& train, Purpose purpose,
                             const passes::WorkspaceOf& workspace_of) {
  std::vector<int64_t> workspace_bytes(train.graph.values.size(), -1);
  for (const ir::Node& node : train.graph.nodes)
    workspace_bytes[static_cast<size_t>(node.outputs.front())] = workspace_of(node);
  compiled.computed.push_back(
      {.train = train, .purpose = purpose, .workspace_bytes = std::move(workspace_bytes)});
}

Compiler::Placed Compiler::place_within(passes::TrainGraph train, const std::vector<int64_t>& workspace_bytes,
                                        int64_t budget_bytes) {
  passes::PassContext context = context_of(train);
  context.budget_bytes = budget_bytes;
  context.workspace_of = [&, asked = context.workspace_of](const ir::Node& node) {
    // One that works in less has other attributes than when it was asked.
    if (node.op->smaller != nullptr) return asked(node);
    const auto first = static_cast<size_t>(node.outputs.front());
    return first < workspace_bytes.size() && workspace_bytes[first] >= 0 ? workspace_bytes[first]
                                                                         : asked(node);
  };
  passes::run_passes(train, context, passes::Stage::place);
  context.recompute.fits = context.recompute.peak_after_bytes <= options().budget_bytes;
  exec::CompileOptions compile{.backend = options().backend,
                               .driver = driver_,
                               .num_threads = options().num_threads,
                               .device = options().device,
                               .pack = compiled.is_packed};
  if (trials_.kernels != nullptr) {
    trials_.kernels->cover(train.graph);
    compile.trusts = [kernels = trials_.kernels](const ir::OpDef& op, const ir::NodeView& view) {
      return kernels->trusts(op, view);
    };
  }
  for (const passes::Gradient& gradient : train.gradients) compile.gradients.push_back(gradient.gradient);
  compiled.layout->add(train.graph);
  return {.program = exec::compile(std::move(train.graph), *compiled.layout, compile),
          .recompute = context.recompute};
}

exec::Program Compiler::place(const passes::TrainGraph& train, Purpose purpose,
                              const std::vector<int64_t>& workspace_bytes) {
  Placed best = place_within(train, workspace_bytes, options().budget_bytes);
  // What packs badly packs well with a value more or less.
  const auto lowest = static_cast<double>(best.program.report.bound_bytes);
  for (const double above : {1.01, 1.02, 1.03}) {
    const exec::ArenaReport& report = best.program.report;
    if (best.recompute.num_recomputed == 0 ||
        report.height_bytes <= report.bound_bytes + report.bound_bytes / 100)
      break;
    Placed next = place_within(train, workspace_bytes, static_cast<int64_t>(above * lowest));
    if (next.program.arena_bytes() < best.program.arena_bytes()) best = std::move(next);
  }
  if (purpose == Purpose::step || purpose == Purpose::accumulate) {
    if (best.recompute.peak_before_bytes > compiled.recompute.peak_before_bytes)
      compiled.recompute = best.recompute;
  }
  compiled.arena_bytes = std::max(compiled.arena_bytes, best.program.arena_bytes());
  compiled.host_arena_bytes = std::max(compiled.host_arena_bytes, best.program.report.host_bytes);
  return std::move(best.program);
}

}  // namespace hearth::engine
