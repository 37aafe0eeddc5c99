#include "exec/program.h"

#include <algorithm>
#include <cstring>

#include "arena/validate.h"
#include "backend/gpu/device.h"
#include "backend/null/null_backend.h"
#include "base/error.h"
#include "exec/device/host_kernel.h"
#include "exec/device/staging.h"
#include "exec/host_queue.h"
#include "ir/kernel_group.h"
#include "ops/collective/collective.h"

namespace hearth::exec {
namespace {

using ir::kNone;
using ir::ValueId;

constexpr double kPlanSeconds = 60;
/// Of the packer's exact search: a few tenths of a second. Steps, not seconds, so that a plan does not depend
/// on the machine.
constexpr int64_t kPlanSteps = 40'000'000;
/// A packing that is a 512th above its bound is not worth another look.
constexpr int64_t kCloseEnough = 512;
/// An input of so many bytes is sent to a GPU ahead of its run.
constexpr int64_t kLargeBytes = 4096;

/// Addresses for find_waits, far apart.
constexpr int64_t kArena = int64_t{1} << 60;
constexpr int64_t kHostArena = int64_t{2} << 60;
constexpr int64_t kPersistent = int64_t{3} << 60;

/// Whether a GPU's stream, not the host, makes the collective.
bool meets_on_gpu(const ir::Node& node, Backend backend) {
  return backend == Backend::gpu && node.op->transfer == ir::Transfer::exchange &&
         node.attrs.contains(ops::kOnGpu);
}

/// On the processor copies are computed like all else.
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
  }
  if (options.backend != Backend::gpu) return;
  for (const bool large : {true, false}) add_staged(large);
}

void Program::add_staged(bool large) {
  for (const auto& [name, id] : inputs_) {
    const int64_t num_bytes = graph_.type(id).num_bytes();
    if ((num_bytes >= kLargeBytes) != large) continue;
    const int scalar = scalar_of_value_[static_cast<size_t>(id)];
    staged_[id] = {.offset = staging_bytes_,
                   .from = scalar < 0 ? nullptr : scalars_[static_cast<size_t>(scalar)].data()};
    staging_bytes_ += passes::padded_bytes(num_bytes);
  }
  if (large) large_bytes_ = staging_bytes_;
}

bool Program::runs_on_gpu(const ir::Node& node, const CompileOptions& options) const {
  if (options.backend != Backend::gpu || node.op->gpu == nullptr) return false;
  if (node.op->transfer == ir::Transfer::exchange) return meets_on_gpu(node, options.backend);
  return !options.trusts ||
         options.trusts(*node.op, ir::NodeTypes(graph_, node).view(node, options.num_threads));
}

size_t Program::num_at_once(size_t first, const CompileOptions& options) const {
  if (options.backend != Backend::gpu) return 1;
  const size_t most = ir::num_together(graph_, first);
  size_t count = 0;
  while (count < most && runs_on_gpu(graph_.nodes[first + count], options)) ++count;
  return std::max<size_t>(1, count);
}

ir::Kernel Program::prepare_kernel(size_t first, size_t num_nodes, const CompileOptions& options) {
  const ir::Node& node = graph_.nodes[first];
  if (num_nodes > 1) {
    std::vector<ir::NodeTypes> types;
    std::vector<ir::NodeView> views;
    for (size_t i = first; i < first + num_nodes; ++i) types.emplace_back(graph_, graph_.nodes[i]);
    for (size_t i = 0; i < num_nodes; ++i) views.push_back(types[i].view(graph_.nodes[first + i]));
    return node.op->gpu_many(views);
  }
  const ir::NodeTypes types(graph_, node);
  const ir::NodeView view = types.view(node, options.num_threads);
  if (options.backend == Backend::null) return null_backend::prepare(*node.op, view);
  if (runs_on_gpu(node, options)) return node.op->gpu(view);
  if (node.op->cpu == nullptr) internal_error("{} has no CPU kernel", node.op->name);
  if (options.backend == Backend::cpu || node.op->transfer == ir::Transfer::exchange)
    return node.op->cpu(view);
  if (!scratch_) scratch_ = std::make_shared<HostScratch>();
  ++num_host_nodes_;
  return host_kernel(*node.op, view, scratch_);
}

void Program::prepare(const CompileOptions& options) {
  for (const ir::Node& node : graph_.nodes) report_.flops += ir::cost_of(graph_, node).flops;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const ir::Node& node = graph_.nodes[i];
    if (node.op->is_view) continue;
    const size_t num_nodes = num_at_once(i, options);
    Step step{.kernel = prepare_kernel(i, num_nodes, options),
              .in = std::vector<void*>(num_nodes * node.inputs.size(), nullptr),
              .out = std::vector<void*>(num_nodes * node.outputs.size(), nullptr),
              .node = i,
              .num_nodes = num_nodes,
              .queue = queue_of(*node.op, options.backend)};
    if (meets_on_gpu(node, options.backend)) {
      // Libraries differ in what of theirs can be recorded.
      may_record_ = false;
      meets_on_gpu_ = true;
    } else if (step.queue == Queue::exchange && options.backend != Backend::null) {
      step.host_call = std::ssize(host_calls_);
      host_calls_.push_back({.program = this, .step = steps_.size()});
    }
    steps_.push_back(std::move(step));
    i += num_nodes - 1;
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
    arena::Problem& problem = storage.on_host ? host_problem_ : problem_;
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
    keep_together(step);
    if (step.kernel.workspace_bytes <= 0) continue;
    step.workspace_buffer = std::ssize(problem_.buffers);
    const ir::Node& node = graph_.nodes[step.node];
    problem_.buffers.push_back({.lower = static_cast<int64_t>(step.node),
                                .upper = static_cast<int64_t>(step.node + step.num_nodes),
                                .size = passes::padded_bytes(step.kernel.workspace_bytes),
                                .alignment = 64,
                                .id = fmt::format("workspace of {} {}", node.op->name, node.name),
                                .kind = "workspace"});
  }
  solution_ = pack(problem_, options);
  host_solution_ = pack(host_problem_, options);
  summarize();
}

/// What any node of a step needs is there for all of them.
void Program::keep_together(const Step& step) {
  const auto begin = static_cast<int64_t>(step.node), end = static_cast<int64_t>(step.node + step.num_nodes);
  for (arena::Problem* problem : {&problem_, &host_problem_}) {
    for (arena::Buffer& buffer : problem->buffers) {
      if (buffer.lower > begin && buffer.lower < end) buffer.lower = begin;
      if (buffer.upper > begin && buffer.upper < end) buffer.upper = end;
    }
  }
}

void Program::summarize() {
  report_.height_bytes = solution_.height;
  report_.bound_bytes = solution_.lower_bound;
  report_.host_bytes = host_solution_.height;
  std::vector<int64_t> change(graph_.nodes.size() + 1, 0);
  for (const arena::Buffer& buffer : problem_.buffers) {
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
  for (const arena::Buffer& buffer : problem_.buffers) {
    if (buffer.lower > peak || buffer.upper <= peak) continue;
    if (buffer.kind == "gradient") report_.gradient_bytes += buffer.size;
    if (buffer.kind == "activation") report_.activation_bytes += buffer.size;
    if (buffer.kind == "workspace") report_.workspace_bytes += buffer.size;
  }
}

Program::~Program() = default;

void Program::bind(const Places& places) {
  staging_ = places.staging;
  queues_ = places.queues;
  for (size_t i = 0; i < graph_.values.size(); ++i) resolve_pointer(static_cast<ValueId>(i), places);
  for (size_t s = 0; s < steps_.size(); ++s) {
    Step& step = steps_[s];
    size_t in = 0, out = 0;
    for (const ir::Node& node : nodes_of(step)) {
      for (const ValueId id : node.inputs) bind_step_input(s, in++, id);
      for (const ValueId id : node.outputs) step.out[out++] = pointers_[static_cast<size_t>(id)];
    }
    if (step.workspace_buffer >= 0) {
      step.workspace = places.arena + solution_.offsets[static_cast<size_t>(step.workspace_buffer)];
    }
  }
  if (staging_ != nullptr || has_collectives()) order_queues();
}

void Program::connect(distributed::ProcessGroup& group, HostQueue* queue) {
  group_ = &group;
  host_queue_ = queue;
}

void Program::bind_step_input(size_t s, size_t k, ValueId id) {
  if (id == kNone) return;
  const auto root = static_cast<size_t>(root_[static_cast<size_t>(id)]);
  steps_[s].in[k] = pointers_[root];
  const bool moves =
      graph_.values[root].role == ir::Role::input || staged_.contains(static_cast<ValueId>(root));
  if (moves) patches_[root].push_back({s, k});
}

/// Where a value lies in the memory that programs write; the same wherever they are bound to.
std::optional<int64_t> Program::address_of(ValueId id) const {
  const auto index = static_cast<size_t>(id);
  if (const int storage = storage_of_value_[index]; storage >= 0) {
    const Place place = places_[static_cast<size_t>(storage)];
    return place.on_host ? kHostArena + host_solution_.offsets[place.buffer]
                         : kArena + solution_.offsets[place.buffer];
  }
  const ir::Value& value = graph_.values[static_cast<size_t>(root_[index])];
  if (!ir::is_persistent(value.role)) return std::nullopt;
  return kPersistent + layout_.at(value.name).offset;
}

QueuedStep Program::accesses_of(const Step& step) const {
  QueuedStep queued{.queue = step.queue};
  const auto add = [&](ValueId id, bool writes) {
    if (id == kNone) return;
    if (const auto address = address_of(id))
      queued.accesses.push_back({*address, graph_.type(id).num_bytes(), writes});
  };
  for (const ir::Node& node : nodes_of(step)) {
    for (const ValueId id : node.inputs) add(id, false);
    for (const ValueId id : node.outputs) add(id, true);
  }
  if (step.workspace_buffer >= 0) {
    queued.accesses.push_back({kArena + solution_.offsets[static_cast<size_t>(step.workspace_buffer)],
                               step.kernel.workspace_bytes, true});
  }
  return queued;
}

Waits Program::find_waits() const {
  std::vector<QueuedStep> queued;
  for (const Step& step : steps_) queued.push_back(accesses_of(step));
  return exec::find_waits(queued);
}

std::vector<PlannedStep> Program::planned_steps() const {
  Waits waits = find_waits();
  std::vector<PlannedStep> planned;
  for (size_t s = 0; s < steps_.size(); ++s)
    planned.push_back({nodes_of(steps_[s]), steps_[s].queue, std::move(waits.before[s])});
  return planned;
}

void Program::order_queues() {
  Waits waits = find_waits();
  const auto mark = [&](size_t other) {
    if (staging_ != nullptr && !steps_[other].done) steps_[other].done = std::make_unique<gpu::Event>();
  };
  for (size_t s = 0; s < steps_.size(); ++s) {
    std::ranges::for_each(waits.before[s], mark);
    steps_[s].waits = std::move(waits.before[s]);
  }
  std::ranges::for_each(waits.at_end, mark);
  last_waits_ = std::move(waits.at_end);
  if (staging_ == nullptr) return;
  begun_ = std::make_unique<gpu::Event>();
  for (const Queue other : {Queue::in, Queue::out, Queue::exchange}) {
    const auto is_its = [&](const Step& step) { return step.queue == other; };
    if (std::ranges::any_of(steps_, is_its)) forked_.push_back(queue(other));
  }
}

std::byte* Program::persistent_place(const ir::Value& value, const Places& places) const {
  const PersistentBuffer& buffer = layout_.at(value.name);
  if (staging_ == nullptr) return places.persistent + buffer.offset;
  return buffer.on_host ? places.host_persistent + buffer.offset : places.persistent + buffer.device_offset;
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
    pointers_[index] = persistent_place(value, places);
  } else if (const auto staged = staged_.find(static_cast<ValueId>(root)); staged != staged_.end()) {
    pointers_[index] = places.staging->on_gpu(0) + staged->second.offset;
  } else if (value.role == ir::Role::scalar) {
    pointers_[index] = scalars_[static_cast<size_t>(scalar_of_value_[root])].data();
  }
}

void Program::point_at(ValueId root, void* place) {
  for (const Patch& patch : patches_[static_cast<size_t>(root)]) steps_[patch.step].in[patch.input] = place;
}

void Program::bind_input(std::string_view name, const void* data) {
  const auto found = inputs_.find(name);
  if (found == inputs_.end()) internal_error("the program has no input '{}'", name);
  if (const auto staged = staged_.find(found->second); staged != staged_.end()) {
    staged->second.from = data;
  } else {
    point_at(found->second, const_cast<void*>(data));
  }
}

void Program::set_scalar(std::string_view name, float value) {
  const auto found = inputs_.find(name);
  if (found == inputs_.end()) return;
  const int slot = scalar_of_value_[static_cast<size_t>(found->second)];
  HEARTH_CHECK(slot >= 0);
  scalars_[static_cast<size_t>(slot)][0] = value;
}

}  // namespace hearth::exec
