#include "engine/runtime.h"

#include <algorithm>

#include "base/error.h"
#include "engine/plan_builder.h"
#include "ir/state_name.h"
#include "passes/parallel/unroll.h"

namespace hearth::engine {

Runtime::Runtime(const EngineOptions& options, std::span<const int64_t> train_sizes,
                 std::span<const int64_t> eval_sizes)
    : threads_(options.num_threads) {
  if (options.backend == exec::Backend::gpu) {
    const gpu::DeviceInfo gpu = exec::find_gpu(options.gpu.device, options.gpu.number);
    self_test_ = std::make_unique<exec::SelfTest>(gpu, options.self_test);
    if (options.matmul_cache)
      matmul_choice_ = std::make_unique<exec::MatmulChoice>(gpu, *options.matmul_cache);
  }
  plan_ = std::make_shared<Plan>(make_plan(options, train_sizes, eval_sizes, checks()));
  input_order_.emplace(plan_->input_names);
  memory_ = std::make_unique<Memory>(plan_);
  const exec::Bindings places = memory_->places();
  for (const exec::Program* program : plan_->programs()) {
    executors_.try_emplace(program, *program).first->second.bind(places);
    // Creates the inputs here, because a step must not allocate memory. A pipeline's programs have separate
    // inputs for each micro-batch.
    if (options.parallel != Parallel::pipeline) inputs(*program);
  }
  if (options.shards > 1) make_idle_batch();
  if (memory_->gpu() != nullptr && options.gpu.record == RecordMode::always) expect_recordings();
}

void Runtime::expect_recordings() const {
  for (const auto& [program, executor] : executors_) {
    if (const std::string obstacle = executor.obstacle(); !obstacle.empty())
      user_error(
          "record=always needs programs that can be captured as a GPU graph, but found {}; set record=auto",
          obstacle);
  }
}

ProgramInputs& Runtime::inputs(const exec::Program& program, std::optional<int64_t> micro) {
  const auto found = inputs_.find({&program, micro});
  if (found != inputs_.end()) return found->second;
  const std::string prefix = micro ? passes::name_in_micro_batch(*micro, "") : "";
  return inputs_.try_emplace({&program, micro}, executor(program), std::as_const(plan_->input_names), prefix)
      .first->second;
}

void Runtime::run(exec::Executor& executor) {
  memory_->sync_gpu();
  executor.run(threads_);
}

float* Runtime::readings(size_t count) {
  if (exec::Gpu* gpu = memory_->gpu()) {
    if (!pinned_readings_)
      pinned_readings_ =
          std::make_unique<gpu::HostMemory>(gpu->device(), static_cast<int64_t>(count * sizeof(float)));
    return reinterpret_cast<float*>(pinned_readings_->data());
  }
  host_readings_.resize(count);
  return host_readings_.data();
}

void Runtime::make_idle_batch() {
  const auto& [shape, program] = *plan_->step.rbegin();
  int64_t max_bytes = 0;
  for (const std::string& name : plan_->input_names) {
    const ir::Graph& graph = program.graph;
    if (const auto input = graph.find(name)) max_bytes = std::max(max_bytes, graph.type(*input).num_bytes());
  }
  zeros_ = exec::Region(passes::padded_bytes(max_bytes));
  idle_batch_ = {{}, shape.num_rows, shape.row_length};
  for (data::NamedArray& array : idle_batch_.arrays) array.data = zeros_.data();
}

void Runtime::join(distributed::ProcessGroup& group, bool needs_exchange_queue) {
  const EngineOptions& options = plan_->options;
  HEARTH_CHECK(group.has(distributed::Capability::device_memory) == options.reduces_on_gpu);
  HEARTH_CHECK(group.size() == options.num_workers && group.rank() == options.rank);
  group_ = &group;
  group.allow(plan_->allowed_seconds());
  if (memory_->gpu() == nullptr &&
      (needs_exchange_queue || !group.has(distributed::Capability::compute_cores)))
    exchange_queue_ = std::make_unique<exec::HostQueue>();
  for (auto& [program, executor] : executors_) executor.connect(group, exchange_queue_.get());
  // Resets the measured time, so that earlier collectives of the group do not count for the first update.
  exchange_seconds(std::chrono::steady_clock::now());
}

void Runtime::set_heartbeat(const distributed::Heartbeat& heartbeat) {
  heartbeat_ = heartbeat;
  heartbeat.allow(plan_->allowed_seconds());
}

const std::vector<Runtime::RemoteState>& Runtime::remote_states() {
  if (remote_states_) return *remote_states_;
  // These buffers have the same order on all workers, because checkpoints contain the states of all workers.
  const exec::PersistentLayout& layout = *plan_->layout;
  std::vector<const exec::PersistentBuffer*> buffers;
  std::vector<std::byte> is_local;
  for (const exec::PersistentBuffer& buffer : layout.buffers()) {
    if (buffer.role == ir::Role::frozen || buffer.role == ir::Role::carried) continue;
    buffers.push_back(&buffer);
    is_local.push_back(std::byte{buffer.role != ir::Role::remote});
  }
  std::vector<std::byte> all(buffers.size() * static_cast<size_t>(group_->size()));
  group_->all_gather(is_local, all);
  remote_states_.emplace();
  for (size_t i = 0; i < buffers.size(); ++i) {
    int owner = 0;
    while (owner < group_->size() && all[static_cast<size_t>(owner) * buffers.size() + i] == std::byte{0})
      ++owner;
    if (owner == group_->size()) {
      ir::StateName name = ir::parse_state_name(buffers[i]->name);
      const int worker = std::exchange(name.worker, 0);
      HEARTH_CHECK(worker > 0);
      remote_states_->push_back({buffers[i], worker, &layout.at(ir::spell(name))});
    } else if (owner > 0) {
      remote_states_->push_back({buffers[i], owner, buffers[i]});
    }
  }
  return *remote_states_;
}

void Runtime::gather_states() {
  if (group_ == nullptr || remote_states().empty()) return;
  std::byte* const bytes = memory_->host_image();
  for (const auto& [buffer, owner, source] : remote_states()) {
    const auto num_bytes = static_cast<size_t>(buffer->type.num_bytes());
    if (group_->rank() == 0) group_->receive({bytes + buffer->offset, num_bytes}, owner);
    if (group_->rank() == owner) group_->send({bytes + source->offset, num_bytes}, 0);
  }
}

void Runtime::restore_local_states() {
  if (group_ == nullptr) return;
  for (const auto& [buffer, owner, source] : remote_states()) {
    if (owner != plan_->options.rank || source == buffer) continue;
    std::byte* const bytes = memory_->host_image();
    std::copy_n(bytes + buffer->offset, buffer->type.num_bytes(), bytes + source->offset);
  }
}

double Runtime::exchange_seconds(std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double counted = exchange_queue_             ? exchange_queue_->waited_seconds()
                         : memory_->gpu() != nullptr ? 0
                                                     : group_->seconds();
  return seconds.count() + counted - std::exchange(counted_seconds_, counted);
}

}  // namespace hearth::engine
