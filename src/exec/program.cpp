#include "exec/program.h"

#include <algorithm>

#include "backend/gpu/device.h"
#include "backend/null/null_backend.h"
#include "base/error.h"
#include "exec/host_kernel.h"
#include "plan/validate.h"

namespace hearth::exec {
namespace {

using ir::kNone;
using ir::ValueId;

constexpr double kPlanSeconds = 60;
/// A packing that is a 512th above its bound is not worth another look.
constexpr int64_t kCloseEnough = 512;

plan::Solution pack(const plan::Problem& problem, const CompileOptions& options) {
  const int64_t bound = plan::lower_bound(problem);
  if (!options.pack) return {.height = bound, .lower_bound = bound};
  plan::Solution solution = plan::solve(
      problem,
      {.capacity = bound + bound / kCloseEnough, .seconds = kPlanSeconds, .steps = options.plan_steps});
  if (const auto error = plan::validate(problem, solution)) internal_error("the plan is wrong: {}", *error);
  return solution;
}

}  // namespace

int64_t workspace_bytes(const ir::Graph& graph, const ir::Node& node, const CompileOptions& options) {
  const auto kernel = options.backend == Backend::gpu ? node.op->gpu : node.op->cpu;
  if (node.op->is_view || kernel == nullptr) return 0;
  return kernel(ir::NodeTypes(graph, node).view(node, options.num_threads)).workspace_bytes;
}

Program::Program(ir::Graph graph, const PersistentLayout& layout, const CompileOptions& options)
    : graph_(std::move(graph)), layout_(layout) {
  prepare(options);
  plan(options);
  pointers_.assign(graph_.values.size(), nullptr);
  patches_.resize(graph_.values.size());
  scalar_of_value_.assign(graph_.values.size(), -1);
  for (size_t i = 0; i < graph_.values.size(); ++i) {
    const ir::Value& value = graph_.values[i];
    if (value.producer != kNone) continue;
    if (value.role != ir::Role::input && value.role != ir::Role::scalar) continue;
    inputs_.emplace(value.name, static_cast<ValueId>(i));
    if (value.role == ir::Role::scalar) {
      scalar_of_value_[i] = static_cast<int>(scalars_.size());
      scalars_.emplace_back();
    }
    if (options.backend != Backend::gpu) continue;
    staged_[static_cast<ValueId>(i)] = {.offset = staging_bytes_};
    staging_bytes_ += passes::padded_bytes(value.type.num_bytes());
  }
  for (auto& [id, staged] : staged_) {
    const int scalar = scalar_of_value_[static_cast<size_t>(id)];
    if (scalar >= 0) staged.from = scalars_[static_cast<size_t>(scalar)].data();
  }
}

ir::Kernel Program::prepare_kernel(const ir::Node& node, const CompileOptions& options) {
  const ir::NodeTypes types(graph_, node);
  const ir::NodeView view = types.view(node, options.num_threads);
  if (options.backend == Backend::null) return null_backend::prepare(*node.op, view);
  if (options.backend == Backend::gpu && node.op->gpu != nullptr) return node.op->gpu(view);
  if (node.op->cpu == nullptr) internal_error("{} has no CPU kernel", node.op->name);
  if (options.backend == Backend::cpu) return node.op->cpu(view);
  if (!scratch_) scratch_ = std::make_shared<HostScratch>();
  ++num_host_nodes_;
  return host_kernel(*node.op, view, scratch_);
}

void Program::prepare(const CompileOptions& options) {
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const ir::Node& node = graph_.nodes[i];
    report_.flops += ir::cost_of(graph_, node).flops;
    if (node.op->is_view) continue;
    Step step{.kernel = prepare_kernel(node, options),
              .in = std::vector<void*>(node.inputs.size(), nullptr),
              .out = std::vector<void*>(node.outputs.size(), nullptr),
              .node = i};
    steps_.push_back(std::move(step));
  }
}

void Program::add_storages(const passes::StorageMap& map, const CompileOptions& options) {
  std::vector<char> is_gradient(map.storages.size(), 0);
  for (const ValueId id : options.gradients) {
    const int storage = map.of_value[static_cast<size_t>(id)];
    if (storage >= 0) is_gradient[static_cast<size_t>(storage)] = 1;
  }
  for (size_t i = 0; i < map.storages.size(); ++i) {
    const passes::Storage& storage = map.storages[i];
    plan::Problem& problem = storage.on_host ? host_problem_ : problem_;
    places_.push_back({.on_host = storage.on_host, .buffer = problem.buffers.size()});
    const ir::Node& producer = graph_.node(graph_.value(storage.value).producer);
    problem.buffers.push_back(
        {.lower = storage.first,
         .upper = storage.last + 1,
         .size = storage.num_bytes,
         .alignment = 64,
         .id = options.pack ? fmt::format("{} {}", producer.op->name, producer.name) : "",
         .kind = is_gradient[i] != 0 ? "gradient" : "activation"});
  }
}

void Program::plan(const CompileOptions& options) {
  const passes::StorageMap map = passes::assign_storage(graph_);
  storage_of_value_ = map.of_value;
  root_ = map.root;
  add_storages(map, options);
  for (Step& step : steps_) {
    if (step.kernel.workspace_bytes <= 0) continue;
    step.workspace_buffer = std::ssize(problem_.buffers);
    const ir::Node& node = graph_.nodes[step.node];
    problem_.buffers.push_back({.lower = static_cast<int64_t>(step.node),
                                .upper = static_cast<int64_t>(step.node) + 1,
                                .size = passes::padded_bytes(step.kernel.workspace_bytes),
                                .alignment = 64,
                                .id = fmt::format("workspace of {} {}", node.op->name, node.name),
                                .kind = "workspace"});
  }
  solution_ = pack(problem_, options);
  host_solution_ = pack(host_problem_, options);
  summarise();
}

void Program::summarise() {
  report_.height_bytes = solution_.height;
  report_.bound_bytes = solution_.lower_bound;
  report_.host_bytes = host_solution_.height;
  std::vector<int64_t> change(graph_.nodes.size() + 1, 0);
  for (const plan::Buffer& buffer : problem_.buffers) {
    change[static_cast<size_t>(buffer.lower)] += buffer.size;
    change[static_cast<size_t>(buffer.upper)] -= buffer.size;
  }
  int64_t live = 0;
  int64_t most = -1;
  int64_t peak = 0;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    live += change[i];
    if (live > most) {
      most = live;
      peak = static_cast<int64_t>(i);
    }
  }
  for (const plan::Buffer& buffer : problem_.buffers) {
    if (buffer.lower > peak || buffer.upper <= peak) continue;
    if (buffer.kind == "gradient") report_.gradient_bytes += buffer.size;
    if (buffer.kind == "activation") report_.activation_bytes += buffer.size;
    if (buffer.kind == "workspace") report_.workspace_bytes += buffer.size;
  }
}

void Program::bind(const Places& places) {
  stream_ = places.stream;
  for (size_t i = 0; i < graph_.values.size(); ++i) resolve_pointer(static_cast<ValueId>(i), places);
  for (size_t s = 0; s < steps_.size(); ++s) {
    Step& step = steps_[s];
    const ir::Node& node = graph_.nodes[step.node];
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (node.inputs[k] == kNone) continue;
      const auto root = static_cast<size_t>(root_[static_cast<size_t>(node.inputs[k])]);
      step.in[k] = pointers_[root];
      if (staged_.empty() && graph_.values[root].role == ir::Role::input) patches_[root].push_back({s, k});
    }
    for (size_t k = 0; k < node.outputs.size(); ++k)
      step.out[k] = pointers_[static_cast<size_t>(node.outputs[k])];
    if (step.workspace_buffer >= 0) {
      step.workspace = places.arena + solution_.offsets[static_cast<size_t>(step.workspace_buffer)];
    }
  }
}

void Program::resolve_pointer(ValueId id, const Places& places) {
  const auto index = static_cast<size_t>(id);
  const auto root = static_cast<size_t>(root_[index]);
  const ir::Value& value = graph_.values[root];
  const int storage = storage_of_value_[index];
  if (storage >= 0) {
    const Place place = places_[static_cast<size_t>(storage)];
    pointers_[index] = place.on_host ? places.host + host_solution_.offsets[place.buffer]
                                     : places.arena + solution_.offsets[place.buffer];
  } else if (ir::is_persistent(value.role)) {
    pointers_[index] = places.persistent + layout_.at(value.name).offset;
  } else if (const auto staged = staged_.find(static_cast<ValueId>(root)); staged != staged_.end()) {
    pointers_[index] = places.staging + staged->second.offset;
  } else if (value.role == ir::Role::scalar) {
    pointers_[index] = scalars_[static_cast<size_t>(scalar_of_value_[root])].data();
  }
}

void Program::bind_input(std::string_view name, const void* data) {
  const auto found = inputs_.find(name);
  if (found == inputs_.end()) internal_error("the program has no input '{}'", name);
  if (!staged_.empty()) staged_.at(found->second).from = data;
  for (const Patch& patch : patches_[static_cast<size_t>(found->second)]) {
    steps_[patch.step].in[patch.input] = const_cast<void*>(data);
  }
}

void Program::set_scalar(std::string_view name, float value) {
  const auto found = inputs_.find(name);
  if (found == inputs_.end()) return;
  const int slot = scalar_of_value_[static_cast<size_t>(found->second)];
  HEARTH_CHECK(slot >= 0);
  scalars_[static_cast<size_t>(slot)][0] = value;
}

void Program::stage_inputs() {
  copies_.clear();
  for (const auto& [id, staged] : staged_) {
    const int64_t num_bytes = graph_.type(id).num_bytes();
    auto* to = static_cast<std::byte*>(pointers_[static_cast<size_t>(id)]);
    if (staged.from != nullptr) stream_->copy_in(to, staged.from, num_bytes);
  }
}

void Program::run_step(const Step& step, ThreadPool& threads) {
  step.kernel.run(
      {.in = step.in, .out = step.out, .workspace = step.workspace, .threads = &threads, .stream = stream_});
}

void Program::run(ThreadPool& threads) {
  stage_inputs();
  for (const Step& step : steps_) run_step(step, threads);
  if (stream_ != nullptr) stream_->synchronise();
}

void Program::run_with(ThreadPool& threads, FunctionRef<void(size_t)> after) {
  stage_inputs();
  for (const Step& step : steps_) {
    run_step(step, threads);
    if (stream_ != nullptr) stream_->synchronise();
    copies_.clear();
    after(step.node);
  }
}

const void* Program::data(ValueId id) const {
  const void* place = pointers_[static_cast<size_t>(id)];
  if (stream_ == nullptr) return place;
  const auto [copy, is_new] = copies_.try_emplace(id);
  if (is_new) {
    copy->second.resize(static_cast<size_t>(graph_.type(id).num_bytes()));
    stream_->copy_out(copy->second.data(), static_cast<const std::byte*>(place), std::ssize(copy->second));
    stream_->synchronise();
  }
  return copy->second.data();
}

}  // namespace hearth::exec
