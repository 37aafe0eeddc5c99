#include "engine/runtime.h"

#include <algorithm>

#include "base/error.h"
#include "engine/plan_builder.h"
#include "ir/state_name.h"

namespace hearth::engine {

float scalar_output(const exec::Executor& executor, size_t position) {
  return *static_cast<const float*>(executor.data(executor.graph().outputs[position]));
}

void set_scalars(exec::Executor& executor, const Part& part, bool is_present, double learning_rate) {
  executor.set_scalar(kInverseSamples, is_present ? static_cast<float>(1.0 / part.num_samples) : 0.0F);
  executor.set_scalar(kPresent, is_present ? 1.0F : 0.0F);
  executor.set_scalar(kInverseMicro, static_cast<float>(1.0 / static_cast<double>(part.num_micro)));
  executor.set_scalar(kLearningRate, static_cast<float>(learning_rate));
  executor.set_scalar("one", 1.0F);
}

Runtime::Runtime(const EngineOptions& options, std::span<const int64_t> train_sizes,
                 std::span<const int64_t> eval_sizes)
    : threads(options.num_threads) {
  if (options.backend == exec::Backend::gpu) {
    const gpu::DeviceInfo gpu = exec::find_gpu(options.gpu.device, options.gpu.number);
    self_test = std::make_unique<exec::SelfTest>(gpu, options.self_test);
    if (options.matmuls) matmul_choice = std::make_unique<exec::MatmulChoice>(gpu, *options.matmuls);
  }
  plan = std::make_shared<Plan>(make_plan(options, train_sizes, eval_sizes, checks()));
  strategy = make_strategy(plan->options.parallel);
  memory = std::make_unique<Memory>(plan);
  const exec::Places places = memory->places();
  for (const exec::Program* program : plan->programs())
    executors.try_emplace(program, *program).first->second.bind(places);
  if (options.shards > 1) make_idle_batch();
  if (memory->gpu() != nullptr && options.gpu.record == RecordMode::always) expect_recordings();
  strategy->open(*this);
}

void Runtime::expect_recordings() const {
  for (const auto& [program, executor] : executors) {
    if (const std::string obstacle = executor.obstacle(); !obstacle.empty())
      user_error("expected work that can be recorded for record=always, got {}; try record=auto", obstacle);
  }
}

void Runtime::bind_inputs(exec::Executor& executor, const MicroBatch& batch, int64_t step, int64_t index) {
  // Each micro-batch of a group has its own line, so that dropout differs between them.
  counter[0] = step;
  counter[1] = index;
  const std::vector<std::string>& names = plan->input_names;
  for (size_t i = 0; i < names.size(); ++i) executor.bind_input(names[i], batch.inputs[i]);
  if (executor.has_input("counter")) executor.bind_input("counter", counter.data());
}

void Runtime::run(exec::Executor& executor) {
  memory->to_gpu();
  executor.run(threads);
}

void Runtime::finish_shard(int64_t number) {
  const std::vector<ShardLevel>& levels = plan->levels;
  size_t level = 0;
  for (; (number >> level & 1) != 0; ++level) executor(levels[level].add).start(threads);
  executor(levels[level].save).start(threads);
}

float* Runtime::readings() {
  const auto count = kFirstLoss + static_cast<size_t>(plan->options.accumulate);
  if (exec::Gpu* gpu = memory->gpu()) {
    if (!pinned_readings)
      pinned_readings =
          std::make_unique<gpu::HostMemory>(gpu->device(), static_cast<int64_t>(count * sizeof(float)));
    return reinterpret_cast<float*>(pinned_readings->data());
  }
  host_readings.resize(count);
  return host_readings.data();
}

void Runtime::make_idle_batch() {
  const auto& [shape, program] = *plan->step.rbegin();
  int64_t most = 0;
  for (const std::string& name : plan->input_names) {
    const ir::Graph& graph = program.graph;
    if (const auto input = graph.find(name)) most = std::max(most, graph.type(*input).num_bytes());
  }
  zeros = exec::Region(passes::padded_bytes(most));
  idle_batch = {.num_rows = shape.num_rows, .row_length = shape.row_length};
  idle_batch.inputs.fill(zeros.data());
}

void Runtime::join(distributed::ProcessGroup& joined) {
  const EngineOptions& options = plan->options;
  HEARTH_CHECK(joined.has(distributed::Capability::device_memory) == options.meets_on_gpu);
  HEARTH_CHECK(joined.size() == options.num_workers && joined.rank() == options.rank);
  group = &joined;
  joined.allow(plan->allowed_seconds());
  own_losses.resize(static_cast<size_t>(strategy->num_own_micro(options)));
  if (memory->gpu() == nullptr &&
      (strategy->waits_in_turns() || !joined.has(distributed::Capability::own_cores)))
    exchange_queue = std::make_unique<exec::HostQueue>();
  for (auto& [program, executor] : executors) executor.connect(joined, exchange_queue.get());
  // What the group was waited for before is not of this engine's updates.
  waited_since(std::chrono::steady_clock::now());
}

void Runtime::find_away() {
  // What checkpoints hold is the same on all workers, wherever it is.
  const exec::PersistentLayout& layout = *plan->layout;
  std::vector<const exec::PersistentBuffer*> buffers;
  std::vector<std::byte> mine;
  for (const exec::PersistentBuffer& buffer : layout.buffers()) {
    if (buffer.role == ir::Role::frozen || buffer.role == ir::Role::carried) continue;
    buffers.push_back(&buffer);
    mine.push_back(std::byte{buffer.role != ir::Role::remote});
  }
  std::vector<std::byte> all(buffers.size() * static_cast<size_t>(group->size()));
  group->all_gather(mine, all);
  away.emplace();
  for (size_t i = 0; i < buffers.size(); ++i) {
    int owner = 0;
    while (owner < group->size() && all[static_cast<size_t>(owner) * buffers.size() + i] == std::byte{0})
      ++owner;
    if (owner == group->size()) {
      ir::StateName name = ir::parse_state_name(buffers[i]->name);
      const int worker = std::exchange(name.worker, 0);
      HEARTH_CHECK(worker > 0);
      away->push_back({buffers[i], worker, &layout.at(ir::spell(name))});
    } else if (owner > 0) {
      away->push_back({buffers[i], owner, buffers[i]});
    }
  }
}

void Runtime::gather_states() {
  if (group == nullptr) return;
  if (!away) find_away();
  std::byte* const bytes = away->empty() ? nullptr : memory->on_host();
  for (const auto& [buffer, owner, source] : *away) {
    const auto num_bytes = static_cast<size_t>(buffer->type.num_bytes());
    if (group->rank() == 0) group->receive({bytes + buffer->offset, num_bytes}, owner);
    if (group->rank() == owner) group->send({bytes + source->offset, num_bytes}, 0);
  }
}

void Runtime::take_own_states() {
  if (group == nullptr) return;
  if (!away) find_away();
  for (const Away& state : *away) {
    if (state.owner != plan->options.rank || state.source == state.buffer) continue;
    std::byte* const bytes = memory->on_host();
    std::copy_n(bytes + state.buffer->offset, state.buffer->type.num_bytes(), bytes + state.source->offset);
  }
}

double Runtime::waited_since(std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double waited = exchange_queue             ? exchange_queue->waited_seconds()
                        : memory->gpu() != nullptr ? 0
                                                   : group->seconds();
  return seconds.count() + waited - std::exchange(waited_seconds, waited);
}

}  // namespace hearth::engine
