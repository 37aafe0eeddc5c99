#include "engine/engine.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "engine/gpu_fit.h"
#include "engine/plan_report.h"
#include "ir/state_name.h"
#include "ir/text.h"
#include "ops/op_list.h"
#include "passes/rewrite.h"

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

void use_average(ir::Graph& graph) {
  for (ir::Value& value : graph.values) {
    if (value.role == ir::Role::parameter && value.producer == ir::kNone)
      value.name = ir::spell(ir::StateKind::average, value.name);
    if (value.role == ir::Role::parameter) value.role = ir::Role::state;
  }
}

}  // namespace

Engine::Engine(EngineOptions options, std::span<const int64_t> train_sizes,
               std::span<const int64_t> eval_sizes)
    : options_(std::move(options)), threads_(options_.num_threads), counter_(kCounterSize, 0) {
  options_.optimizer.dynamic_loss_scale = options_.precision == DType::f16;
  if (options_.num_workers == 1) options_.parallel = Parallel::data;
  if (options_.backend == exec::Backend::gpu && runs()) {
    const int gpu =
        exec::choose_gpu(options_.gpu.device, gpu::list_devices(), gpu::runtime(), options_.gpu.number);
    self_test_ = std::make_unique<exec::SelfTest>(gpu, options_.self_test);
    if (options_.products) products_ = std::make_unique<exec::MatmulChoice>(gpu, *options_.products);
  }
  HEARTH_CHECK(options_.accumulate % options_.shards == 0 && options_.shards % num_sharing() == 0);
  if (is_pipeline()) {
    compile_stage(train_sizes, eval_sizes);
  } else {
    compile(Purpose::step, train_sizes, step_);
    if (num_own_micro() > 1) compile(Purpose::accumulate, train_sizes, accumulate_);
    compile(Purpose::evaluate, eval_sizes, evaluate_);
    add_levels();
  }
  if (works_alone())
    outer_ = finish(make_outer_graph(train_program().graph(), statistics_, options_.local), Purpose::step);
  if (!runs()) return;
  bind_all();
  if (options_.shards > 1) make_idle_batch();
  if (is_pipeline()) make_room_for_inputs();
}

void Engine::compile(Purpose purpose, std::span<const int64_t> sizes, Programs& programs) {
  std::vector<int64_t> lengths = options_.row_lengths;
  if (lengths.empty()) lengths.push_back(0);
  for (const int64_t length : lengths) {
    for (const int64_t size : sizes) {
      const BatchShape shape{.num_rows = size, .row_length = length};
      if (!programs.contains(shape)) programs.emplace(shape, compile(purpose, shape));
    }
  }
}

Engine::~Engine() = default;

passes::TrainGraph Engine::build_graph(Purpose purpose, BatchShape shape) {
  passes::TrainGraph train;
  const auto mode = purpose == Purpose::evaluate ? nn::Builder::Mode::eval : nn::Builder::Mode::train;
  nn::Builder builder(train.graph, mode, options_.seed, options_.adapter);
  const Objective::Graph built = options_.objective->build(builder, shape);
  builder.check_adapter();
  train.losses = built.losses;
  has_losses_ = built.losses != ir::kNone;
  if (has_losses_)
    train.graph.outputs.push_back(train.graph.add1(*ops::find_op("sum_all"), {built.losses}, {}, "loss"));
  train.graph.outputs.insert(train.graph.outputs.end(), built.outputs.begin(), built.outputs.end());
  if (tensors_.empty()) {
    tensors_ = builder.tensors();
    for (const nn::Tensor& tensor : tensors_) {
      if (tensor.is_table) tables_.push_back(tensor.name);
    }
    for (const ValueId input : built.inputs) input_names_.push_back(train.graph.value(input).name);
    HEARTH_CHECK(input_names_.size() <= MicroBatch{}.inputs.size());
  }
  if (purpose == Purpose::evaluate) {
    if (options_.optimizer.ema_decay > 0) use_average(train.graph);
  } else {
    train.loss_weight = add_loss_weight(train.graph, options_.optimizer);
  }
  const bool trains = purpose == Purpose::step || purpose == Purpose::accumulate;
  if (trains && options_.shards > 1) statistics_ = take_statistics(train.graph);
  return train;
}

std::unique_ptr<exec::Program> Engine::compile(Purpose purpose, BatchShape shape) {
  return finish(build_graph(purpose, shape), purpose);
}

passes::PassContext Engine::context_of(const passes::TrainGraph& train) {
  passes::PassContext context{.precision = options_.precision,
                              .budget_bytes = options_.budget_bytes,
                              .offload = options_.offload,
                              .machine = options_.machine};
  context.all_reduce.through_host = options_.backend == exec::Backend::gpu && !options_.meets_on_gpu;
  context.all_reduce.on_gpu = options_.meets_on_gpu;
  context.all_reduce.rank = options_.rank;
  context.compress = options_.compress;
  context.off = options_.passes_off;
  context.after_pass = options_.after_pass;
  context.workspace_of = [this, &train](const ir::Node& node) {
    const auto [found, added] = workspace_cache_.try_emplace(kernel_key(train.graph, node), 0);
    if (added) {
      found->second = exec::workspace_bytes(
          train.graph, node, {.backend = options_.backend, .num_threads = options_.num_threads});
    }
    return found->second;
  };
  return context;
}

std::unique_ptr<exec::Program> Engine::finish(passes::TrainGraph train, Purpose purpose) {
  passes::PassContext context = context_of(train);
  const bool updating = train.losses == ir::kNone;
  if (shards_states() && owners_.empty())
    owners_ = owners_of(train.graph, static_cast<int>(options_.num_workers));
  // A graph of gradients alone is one worker's.
  if (shards_weights() && purpose != Purpose::gradients) {
    context.shard = {
        .owners = &owners_, .rank = options_.rank, .through_host = context.all_reduce.through_host};
  }
  if (purpose == Purpose::step && !updating) {
    context.consume_gradients = [this](passes::TrainGraph& graph) {
      const size_t first = graph.graph.nodes.size();
      add_update(graph, options_.optimizer, tables_, statistics_, sums());
      if (shards_weights()) passes::hoist(graph.graph, first);
    };
  } else if (purpose == Purpose::accumulate) {
    context.consume_gradients = [this](passes::TrainGraph& graph) {
      const size_t first = graph.graph.nodes.size();
      add_accumulation(graph, statistics_, shards_weights());
      if (shards_weights()) passes::hoist(graph.graph, first);
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

std::unique_ptr<exec::Program> Engine::finish_computed(passes::TrainGraph& train, Purpose purpose,
                                                       passes::PassContext& context) {
  passes::run_passes(train, context, passes::Stage::exchange);
  if (purpose == Purpose::step && train.losses != ir::kNone) add_own_places(train.graph);
  if (products_) products_->choose(train.graph);
  if (options_.measure_only) keep_computed(train, purpose, context.workspace_of);
  return place(train, purpose);
}

void Engine::keep_computed(const passes::TrainGraph& train, Purpose purpose,
                           const passes::WorkspaceOf& workspace_of) {
  std::vector<int64_t> workspace_bytes(train.graph.values.size(), -1);
  for (const ir::Node& node : train.graph.nodes)
    workspace_bytes[static_cast<size_t>(node.outputs.front())] = workspace_of(node);
  computed_.push_back({.train = train, .purpose = purpose, .workspace_bytes = std::move(workspace_bytes)});
}

Engine::Placed Engine::place_within(passes::TrainGraph train, const std::vector<int64_t>& workspace_bytes,
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
  context.recompute.fits = context.recompute.peak_after_bytes <= options_.budget_bytes;
  exec::CompileOptions compile{
      .backend = options_.backend, .num_threads = options_.num_threads, .pack = !options_.measure_only};
  if (self_test_) {
    self_test_->cover(train.graph);
    compile.trusts = [this](const ir::OpDef& op, const ir::NodeView& view) {
      return self_test_->trusts(op, view);
    };
  }
  for (const passes::Gradient& gradient : train.gradients) compile.gradients.push_back(gradient.gradient);
  layout_.add(train.graph);
  Placed placed{.program = nullptr, .recompute = context.recompute};
  placed.program = std::make_unique<exec::Program>(std::move(train.graph), layout_, compile);
  return placed;
}

std::unique_ptr<exec::Program> Engine::place(const passes::TrainGraph& train, Purpose purpose,
                                             const std::vector<int64_t>& workspace_bytes) {
  Placed best = place_within(train, workspace_bytes, options_.budget_bytes);
  // What packs badly packs well with a value more or less.
  const auto lowest = static_cast<double>(best.program->report().bound_bytes);
  for (const double above : {1.01, 1.02, 1.03}) {
    const exec::ArenaReport& report = best.program->report();
    if (best.recompute.num_recomputed == 0 ||
        report.height_bytes <= report.bound_bytes + report.bound_bytes / 100)
      break;
    Placed next = place_within(train, workspace_bytes, static_cast<int64_t>(above * lowest));
    if (next.program->arena_bytes() < best.program->arena_bytes()) best = std::move(next);
  }
  if (purpose == Purpose::step || purpose == Purpose::accumulate) {
    if (best.recompute.peak_before_bytes > recompute_.peak_before_bytes) recompute_ = best.recompute;
  }
  arena_bytes_ = std::max(arena_bytes_, best.program->arena_bytes());
  host_arena_bytes_ = std::max(host_arena_bytes_, best.program->report().host_bytes);
  return std::move(best.program);
}

void Engine::place(const passes::OffloadOptions& offload, int64_t budget_bytes) {
  HEARTH_CHECK(options_.measure_only && step_.size() == 1 && evaluate_.empty());
  const auto place = [this](const Computed& computed) {
    return this->place(computed.train, computed.purpose, computed.workspace_bytes);
  };
  options_.offload = offload;
  options_.budget_bytes = budget_bytes;
  layout_ = {};
  arena_bytes_ = host_arena_bytes_ = 0;
  recompute_ = {};
  auto next = computed_.begin();
  for (Programs* programs : {&step_, &accumulate_}) {
    for (auto& [shape, program] : *programs) program = place(*next++);
  }
  for (Level& level : levels_) {
    level.put_away = place(*next++);
    level.add = place(*next++);
  }
  if (outer_ != nullptr) outer_ = place(*next);
}

std::vector<exec::Program*> Engine::programs() const {
  std::vector<exec::Program*> all;
  for (const auto* kind : {&step_, &accumulate_, &evaluate_}) {
    for (const auto& [shape, program] : *kind) all.push_back(program.get());
  }
  for (const Level& level : levels_) all.insert(all.end(), {level.put_away.get(), level.add.get()});
  if (outer_ != nullptr) all.push_back(outer_.get());
  for (const auto& [key, program] : pipeline_.singles) all.push_back(program.get());
  return all;
}

exec::GpuRoom::Needs Engine::needs() const {
  exec::GpuRoom::Needs needs;
  for (const exec::Program* program : programs()) needs.cover(*program);
  return needs;
}

int64_t Engine::gpu_bytes() const { return exec::Gpu::needed_bytes(layout_, needs()); }

const std::map<std::string, std::string>& Engine::distrusted() const {
  static const std::map<std::string, std::string> kNone;
  return self_test_ ? self_test_->failures() : kNone;
}

std::span<const std::string> Engine::dropped_products() const {
  return products_ ? std::span<const std::string>(products_->dropped()) : std::span<const std::string>();
}

void Engine::bind_all() {
  const exec::Places places = options_.backend == exec::Backend::gpu ? open_gpu() : open_host();
  for (exec::Program* program : programs()) program->bind(places);
}

exec::Places Engine::open_host() {
  persistent_ = exec::Region(passes::padded_bytes(layout_.num_bytes()));
  arena_ = exec::Region(arena_bytes_);
  host_arena_ = exec::Region(host_arena_bytes_);
  image_ = persistent_.data();
  return {.persistent = image_, .arena = arena_.data(), .host = host_arena_.data()};
}

exec::Places Engine::open_gpu() {
  gpu_ = std::make_unique<exec::Gpu>(options_.gpu);
  if (gpu_bytes() > gpu_->usable_bytes()) refuse_gpu();
  const int64_t image_bytes = passes::padded_bytes(layout_.num_bytes());
  if (layout_.device_bytes() < layout_.num_bytes()) {
    pinned_ = std::make_unique<gpu::HostMemory>(gpu_->device(), image_bytes);
    std::memset(pinned_->data(), 0, static_cast<size_t>(image_bytes));
    image_ = pinned_->data();
  } else {
    persistent_ = exec::Region(image_bytes);
    image_ = persistent_.data();
  }
  gpu_->allocate(layout_, image_, needs());
  return gpu_->places();
}

void Engine::refuse_gpu() const {
  std::vector<int64_t> train_sizes, eval_sizes;
  for (const auto& [shape, program] : step_) train_sizes.push_back(shape.num_rows);
  for (const auto& [shape, program] : evaluate_) eval_sizes.push_back(shape.num_rows);
  const int64_t usable = gpu_->usable_bytes();
  std::string advice = "; no setting was found that fits, try a smaller model";
  const std::vector<WayToFit> ways = ways_to_fit(options_, train_sizes, eval_sizes, usable);
  if (!ways.empty()) advice = "; try, fastest first by a model:";
  for (const WayToFit& way : ways)
    advice += fmt::format("\n  {}   ({}, {:.2f} times as long)", way.settings, way.what, way.times_as_long);
  user_error("expected a plan of at most {} on {}, got {}:\n{}{}", human_bytes(usable),
             gpu_->device().info().name, human_bytes(gpu_bytes()), to_table(make_plan_report(*this)),
             advice.substr(2));
}

}  // namespace hearth::engine
