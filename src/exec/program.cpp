// Compiles a graph to a program: groups nodes into steps, chooses a kernel for each step, and assigns every
// value an offset in the arena. Opens no device, so a plan for any machine can be computed on any other.
// Results of kernel tests are passed in by CompileOptions::trusts.
#include "exec/program.h"

#include <algorithm>
#include <optional>

#include "arena/validate.h"
#include "backend/null/null_backend.h"
#include "base/error.h"
#include "cost/seconds.h"
#include "exec/device/host_kernel.h"
#include "ir/kernel_group.h"
#include "ops/collective/collective.h"
#include "passes/memory/storage.h"

namespace hearth::exec {
namespace {

using ir::kNone;
using ir::ValueId;

constexpr double kPlanSeconds = 60;
/// Step limit of the packer's exact search, which corresponds to about a second. Steps instead of seconds, so
/// that plans do not depend on the machine's speed.
constexpr int64_t kPlanSteps = 120'000'000;
/// A packing whose height exceeds its lower bound by at most 1/512 is accepted without further search.
constexpr int64_t kCloseEnough = 512;
/// Min size in bytes of inputs that Executor::stage_ahead() copies.
constexpr int64_t kLargeBytes = 4096;
constexpr int64_t kScalarBytes = 64;
constexpr double kTimeoutFactor = 50;

/// True if the collective runs on a GPU's stream, not on the host.
bool is_gpu_collective(const ir::Node& node, Backend backend) {
  return backend == Backend::gpu && node.op->transfer == ir::Transfer::exchange &&
         node.attrs.contains(ops::kOnGpu);
}

/// Returns the queue in which the op runs. On the CPU, copies run in the compute queue like any other op.
Queue queue_of(const ir::OpDef& op, Backend backend) {
  if (op.transfer == ir::Transfer::exchange) return Queue::exchange;
  if (op.transfer == ir::Transfer::none || backend != Backend::gpu) return Queue::compute;
  return op.transfer == ir::Transfer::fetch ? Queue::in : Queue::out;
}

arena::Solution pack(const arena::Problem& problem, const CompileOptions& options) {
  const int64_t bound = arena::lower_bound(problem);
  if (!options.pack) return {.height = bound, .lower_bound = bound};
  arena::Solution solution = arena::solve(
      problem, {.capacity = bound + bound / kCloseEnough, .seconds = kPlanSeconds, .steps = kPlanSteps});
  if (const auto error = arena::validate(problem, solution)) internal_error("the plan is wrong: {}", *error);
  return solution;
}

class ProgramCompiler {
 public:
  ProgramCompiler(ir::Graph graph, const PersistentLayout& layout, const CompileOptions& options)
      : layout_(layout), options_(options), map_(passes::assign_storage(graph)) {
    program_.graph = std::move(graph);
    program_.backend = options.backend;
    program_.root = map_.root;
  }

  Program compile() {
    add_steps();
    add_storages();
    add_workspaces();
    program_.solution = pack(program_.problem, options_);
    program_.host_solution = pack(program_.host_problem, options_);
    summarize();
    add_inputs();
    if (options_.pack) locate_values();
    return std::move(program_);
  }

 private:
  void add_steps();
  double seconds_of(size_t first, size_t num_nodes) const;
  bool runs_on_gpu(const ir::Node& node) const;
  size_t num_at_once(size_t first) const;
  ir::Kernel prepare_kernel(size_t first, size_t num_nodes);
  void add_storages();
  void add_workspaces();
  void keep_together(const Step& step);
  void summarize();
  void add_inputs();
  void stage_inputs(bool large);
  void locate_values();
  Location location_of(size_t value) const;
  Location weight_location(const PersistentBuffer& buffer) const;

  const PersistentLayout& layout_;
  const CompileOptions& options_;
  passes::StorageMap map_;
  Program program_;
  std::vector<size_t> buffers_;  ///< for each storage, the index of its buffer in the packing problem
  std::shared_ptr<HostScratch> scratch_;
};

void ProgramCompiler::add_steps() {
  const ir::Graph& graph = program_.graph;
  for (const ir::Node& node : graph.nodes) program_.report.flops += ir::cost_of(graph, node).flops;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    if (node.op->is_view) continue;
    const size_t num_nodes = num_at_once(i);
    const Queue queue = queue_of(*node.op, options_.backend);
    program_.steps.push_back({.kernel = prepare_kernel(i, num_nodes),
                              .node = i,
                              .num_nodes = num_nodes,
                              .queue = queue,
                              .on_host = queue == Queue::exchange && options_.backend != Backend::null &&
                                         !is_gpu_collective(node, options_.backend),
                              .seconds = seconds_of(i, num_nodes)});
    i += num_nodes - 1;
  }
}

double ProgramCompiler::seconds_of(size_t first, size_t num_nodes) const {
  double seconds = options_.device.launch_seconds;
  for (size_t i = first; i < first + num_nodes; ++i)
    seconds += cost::seconds_of(program_.graph, program_.graph.nodes[i], options_.device);
  return seconds;
}

/// True if the node has a GPU kernel and CompileOptions::trusts accepts it.
bool ProgramCompiler::runs_on_gpu(const ir::Node& node) const {
  if (options_.backend != Backend::gpu || !node.op->gpu) return false;
  if (node.op->transfer == ir::Transfer::exchange) return is_gpu_collective(node, options_.backend);
  return !options_.trusts ||
         options_.trusts(*node.op, ir::NodeTypes(program_.graph, node).view(node, options_.num_threads));
}

/// Returns how many nodes, from node `first` on, one kernel call can execute.
size_t ProgramCompiler::num_at_once(size_t first) const {
  if (options_.backend != Backend::gpu) return 1;
  const size_t max_live = ir::num_nodes_in_kernel(program_.graph, first);
  size_t count = 0;
  while (count < max_live && runs_on_gpu(program_.graph.nodes[first + count])) ++count;
  return std::max<size_t>(1, count);
}

ir::Kernel ProgramCompiler::prepare_kernel(size_t first, size_t num_nodes) {
  const ir::Graph& graph = program_.graph;
  const ir::Node& node = graph.nodes[first];
  if (num_nodes > 1) {
    std::vector<ir::NodeTypes> types;
    std::vector<ir::NodeView> views;
    for (size_t i = first; i < first + num_nodes; ++i) types.emplace_back(graph, graph.nodes[i]);
    for (size_t i = 0; i < num_nodes; ++i) views.push_back(types[i].view(graph.nodes[first + i]));
    return options_.driver->kernel(node.op->name, views);
  }
  const ir::NodeTypes types(graph, node);
  const ir::NodeView view = types.view(node, options_.num_threads, options_.winograd);
  if (options_.backend == Backend::null) return null_backend::prepare(*node.op, view);
  if (runs_on_gpu(node)) return options_.driver->kernel(node.op->name, view);
  if (node.op->cpu == nullptr) internal_error("{} has no CPU kernel", node.op->name);
  if (options_.backend == Backend::cpu || node.op->transfer == ir::Transfer::exchange)
    return node.op->cpu(view);
  if (!scratch_) scratch_ = std::make_shared<HostScratch>();
  ++program_.num_host_nodes;
  return host_kernel(*node.op, view, scratch_);
}

void ProgramCompiler::add_storages() {
  const ir::Graph& graph = program_.graph;
  std::vector<char> is_gradient(map_.storages.size(), 0);
  for (const ValueId id : options_.gradients) {
    const int storage = map_.of_value[static_cast<size_t>(id)];
    if (storage >= 0) is_gradient[static_cast<size_t>(storage)] = 1;
  }
  for (size_t i = 0; i < map_.storages.size(); ++i) {
    const passes::Storage& storage = map_.storages[i];
    arena::Problem& problem = storage.on_host ? program_.host_problem : program_.problem;
    buffers_.push_back(problem.buffers.size());
    const ir::Node& producer = graph.node(graph.value(storage.value).producer);
    problem.buffers.push_back(
        {.lower = storage.first,
         .upper = storage.last + 1,
         .size = storage.num_bytes,
         .alignment = 64,
         .id = options_.pack ? fmt::format("{} {}", producer.op->name, producer.name) : "",
         .kind = is_gradient[i] != 0 ? "gradient" : "activation"});
  }
}

void ProgramCompiler::add_workspaces() {
  for (Step& step : program_.steps) {
    keep_together(step);
    if (step.kernel.workspace_bytes <= 0) continue;
    step.workspace_buffer = std::ssize(program_.problem.buffers);
    const ir::Node& node = program_.graph.nodes[step.node];
    program_.problem.buffers.push_back({.lower = static_cast<int64_t>(step.node),
                                        .upper = static_cast<int64_t>(step.node + step.num_nodes),
                                        .size = passes::padded_bytes(step.kernel.workspace_bytes),
                                        .alignment = 64,
                                        .id = fmt::format("workspace of {} {}", node.op->name, node.name),
                                        .kind = "workspace"});
  }
}

/// Extends the lifetimes of buffers that begin or end within a step to the full step, because its nodes run
/// as one kernel.
void ProgramCompiler::keep_together(const Step& step) {
  const auto begin = static_cast<int64_t>(step.node), end = static_cast<int64_t>(step.node + step.num_nodes);
  for (arena::Problem* problem : {&program_.problem, &program_.host_problem}) {
    for (arena::Buffer& buffer : problem->buffers) {
      if (buffer.lower > begin && buffer.lower < end) buffer.lower = begin;
      if (buffer.upper > begin && buffer.upper < end) buffer.upper = end;
    }
  }
}

void ProgramCompiler::summarize() {
  ArenaReport& report = program_.report;
  report.height_bytes = program_.solution.height;
  report.bound_bytes = program_.solution.lower_bound;
  report.host_bytes = program_.host_solution.height;
  const size_t num_nodes = program_.graph.nodes.size();
  std::vector<int64_t> change(num_nodes + 1, 0);
  for (const arena::Buffer& buffer : program_.problem.buffers) {
    change[static_cast<size_t>(buffer.lower)] += buffer.size;
    change[static_cast<size_t>(buffer.upper)] -= buffer.size;
  }
  int64_t live = 0;
  int64_t max_live = -1;
  int64_t peak = 0;
  for (size_t i = 0; i < num_nodes; ++i) {
    live += change[i];
    if (live > max_live) {
      max_live = live;
      peak = static_cast<int64_t>(i);
    }
  }
  for (const arena::Buffer& buffer : program_.problem.buffers) {
    if (buffer.lower > peak || buffer.upper <= peak) continue;
    if (buffer.kind == "gradient") report.gradient_bytes += buffer.size;
    if (buffer.kind == "activation") report.activation_bytes += buffer.size;
    if (buffer.kind == "workspace") report.workspace_bytes += buffer.size;
  }
}

void ProgramCompiler::add_inputs() {
  const std::vector<ir::Value>& values = program_.graph.values;
  for (size_t i = 0; i < values.size(); ++i) {
    const ir::Value& value = values[i];
    const bool is_scalar = value.role == ir::Role::scalar;
    if (value.producer != kNone || (value.role != ir::Role::input && !is_scalar)) continue;
    ProgramInput input{.id = static_cast<ValueId>(i)};
    if (is_scalar) {
      input.scalar_offset = program_.scalar_bytes;
      program_.scalar_bytes += kScalarBytes;
    }
    program_.inputs.emplace(value.name, input);
  }
  if (options_.backend != Backend::gpu) return;
  stage_inputs(true);
  program_.large_bytes = program_.staging_bytes;
  stage_inputs(false);
}

void ProgramCompiler::stage_inputs(bool large) {
  for (auto& [name, input] : program_.inputs) {
    const int64_t num_bytes = program_.graph.type(input.id).num_bytes();
    if ((num_bytes >= kLargeBytes) != large) continue;
    input.staging_offset = program_.staging_bytes;
    program_.staging_bytes += passes::padded_bytes(num_bytes);
  }
}

void ProgramCompiler::locate_values() {
  for (size_t i = 0; i < program_.graph.values.size(); ++i) program_.locations.push_back(location_of(i));
}

Location ProgramCompiler::location_of(size_t value) const {
  using In = Location::In;
  if (const int storage = map_.of_value[value]; storage >= 0) {
    const size_t buffer = buffers_[static_cast<size_t>(storage)];
    if (map_.storages[static_cast<size_t>(storage)].on_host)
      return {In::host_arena, program_.host_solution.offsets[buffer]};
    return {In::arena, program_.solution.offsets[buffer]};
  }
  const ir::Value& root = program_.graph.value(map_.root[value]);
  if (ir::is_persistent(root.role)) return weight_location(layout_.at(root.name));
  const auto input = program_.inputs.find(root.name);
  if (input == program_.inputs.end()) return {};
  if (options_.backend == Backend::gpu) return {In::staging, input->second.staging_offset};
  if (input->second.scalar_offset >= 0) return {In::scalars, input->second.scalar_offset};
  return {In::caller};
}

Location ProgramCompiler::weight_location(const PersistentBuffer& buffer) const {
  if (options_.backend != Backend::gpu) return {Location::In::weights, buffer.offset};
  if (buffer.on_host) return {Location::In::host_weights, buffer.offset};
  if (!buffer.is_on_device()) return {};
  return {Location::In::weights, buffer.device_offset};
}

/// Returns a number for a location, such that equal numbers mean the same memory; nullopt if programs do not
/// write to that memory. It does not depend on the addresses that are bound.
std::optional<int64_t> number_of(const Location& location) {
  switch (location.in) {
    case Location::In::arena:
    case Location::In::host_arena:
    case Location::In::weights:
    case Location::In::host_weights:
      return (static_cast<int64_t>(location.in) << 58) + location.offset;
    default:
      return std::nullopt;
  }
}

QueuedStep accesses_of(const Program& program, const Step& step) {
  QueuedStep queued{.queue = step.queue};
  const auto add = [&](ValueId id, bool writes) {
    if (id == kNone) return;
    if (const auto begin = number_of(program.locations[static_cast<size_t>(id)]))
      queued.accesses.push_back({*begin, program.graph.type(id).num_bytes(), writes});
  };
  for (const ir::Node& node : program.nodes_of(step)) {
    for (const ValueId id : node.inputs) add(id, false);
    for (const ValueId id : node.outputs) add(id, true);
  }
  if (step.workspace_buffer >= 0) {
    const int64_t offset = program.solution.offsets[static_cast<size_t>(step.workspace_buffer)];
    queued.accesses.push_back({*number_of({Location::In::arena, offset}), step.kernel.workspace_bytes, true});
  }
  return queued;
}

}  // namespace

bool Program::has_collectives() const {
  const auto meets = [](const Step& step) { return step.queue == Queue::exchange; };
  return backend != Backend::null && std::ranges::any_of(steps, meets);
}

double Program::seconds() const {
  double sum = 0;
  for (const Step& step : steps) sum += step.seconds;
  return sum;
}

double allowed_seconds(double seconds) { return kTimeoutFactor * seconds; }

Program compile(ir::Graph graph, const PersistentLayout& layout, const CompileOptions& options) {
  return ProgramCompiler(std::move(graph), layout, options).compile();
}

Waits find_waits(const Program& program) {
  std::vector<QueuedStep> queued;
  for (const Step& step : program.steps) queued.push_back(accesses_of(program, step));
  return find_waits(queued);
}

int64_t workspace_bytes(const ir::Graph& graph, const ir::Node& node, const CompileOptions& options) {
  const bool on_gpu = options.backend == Backend::gpu;
  if (node.op->is_view || (on_gpu ? !node.op->gpu : node.op->cpu == nullptr)) return 0;
  const ir::NodeTypes types(graph, node);
  const ir::NodeView view = types.view(node, options.num_threads, options.winograd);
  return (on_gpu ? options.driver->kernel(node.op->name, view) : node.op->cpu(view)).workspace_bytes;
}

}  // namespace hearth::exec
