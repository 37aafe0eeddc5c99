#include "exec/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "backend/gpu/device.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/process.h"
#include "base/text.h"
#include "exec/device/hang_guard.h"
#include "exec/device/replay_check.h"
#include "exec/device/staging.h"
#include "exec/host_queue.h"

/// The executor has two modes. Queued execution calls the kernel of each step: on the CPU the kernel
/// computes; on a GPU it launches work into one of four queues (compute, copies in, copies out, exchange).
/// Where steps of different queues access the same memory, events order them (exec/waits.h); fork() and
/// join() begin and end a run of all queues. Recorded execution replays a HIP or CUDA graph of these launches
/// by one call, which avoids their overhead. Addresses are constants in a recording, so there is one
/// recording for each half of the double-buffered inputs. Because a recording may be wrong due to a bug in a
/// runtime or library, which may show only after some replays, ReplayCheck compares some replays with queued
/// execution bit for bit; if they differ, recording is turned off.
namespace hearth::exec {
namespace {

using ir::kNone;
using ir::ValueId;

/// Timeouts in seconds for waiting on other workers: of a GPU in collectives between GPUs, where another
/// worker may be evaluating; and of a GPU for collectives on the host, which have a shorter timeout
/// themselves.
constexpr double kCollectiveSeconds = 3600, kHostSeconds = 1e6;

/// Replays of a recording that are compared with queued execution.
constexpr int64_t kCheckedReplays[] = {1, 2, 50};
/// Time between later checks: at least an hour, and at least this many times the duration of a check.
constexpr std::chrono::hours kBetweenChecks{1};
constexpr int kMinPauseFactor = 500;
/// Timeout for recording a program, which takes milliseconds.
constexpr double kRecordingSeconds = 60;

using Clock = std::chrono::steady_clock;

/// Names a program by its steps, and by the ops and types of its nodes.
std::string key_of(const Program& program) {
  Hasher hasher;
  const auto add = [&](std::string_view text) { hasher.update(std::as_bytes(std::span(text))); };
  for (const ir::Node& node : program.graph.nodes) {
    add(node.op->name);
    for (const ValueId id : node.outputs) {
      const ir::Type& type = program.graph.type(id);
      add(dtype_name(type.dtype));
      add(to_string(type.shape));
    }
  }
  return fmt::format("{} steps, {}", program.steps.size(), hex64(hasher.digest()));
}

bool has_gpu_collectives(const Program& program) {
  return program.backend == Backend::gpu && std::ranges::any_of(program.steps, [](const Step& step) {
           return step.queue == Queue::exchange && !step.on_host;
         });
}

}  // namespace

Executor::Executor(const Program& program)
    : program_(program),
      scalars_(static_cast<size_t>(program.scalar_bytes)),
      can_record_(obstacle().empty()),
      key_(key_of(program)),
      wait_seconds_(has_gpu_collectives(program) ? kCollectiveSeconds
                    : program.has_collectives()  ? kHostSeconds
                                                 : 0) {
  for (const auto& [name, input] : program.inputs) {
    if (input.staging_offset < 0) continue;
    Staged& staged = staged_[input.id];
    staged = {.offset = input.staging_offset, .num_bytes = program.graph.type(input.id).num_bytes()};
    if (input.scalar_offset >= 0) staged.from = scalars_.data() + input.scalar_offset;
  }
}

Executor::~Executor() = default;

void Executor::bind(const Bindings& places) {
  bindings_ = places;
  addresses_.clear();
  patches_.clear();
  for (const Location& location : program_.locations) addresses_.push_back(address_of(location, places));
  calls_.clear();
  calls_.resize(program_.steps.size());
  for (size_t i = 0; i < calls_.size(); ++i) bind_call(i, places);
  if (is_on_gpu() || program_.has_collectives()) order_queues();
}

std::byte* Executor::address_of(const Location& location, const Bindings& places) {
  switch (location.in) {
    case Location::In::arena:
      return places.arena + location.offset;
    case Location::In::host_arena:
      return places.host + location.offset;
    case Location::In::weights:
      return places.persistent + location.offset;
    case Location::In::host_weights:
      return places.host_persistent + location.offset;
    case Location::In::staging:
      return places.staging->on_gpu(0) + location.offset;
    case Location::In::scalars:
      return scalars_.data() + location.offset;
    case Location::In::none:
    case Location::In::caller:
      break;
  }
  return nullptr;
}

void Executor::bind_call(size_t number, const Bindings& places) {
  Call& call = calls_[number];
  const Step& step = program_.steps[number];
  call.executor = this;
  call.step = &step;
  for (const ir::Node& node : program_.nodes_of(step)) {
    for (const ValueId id : node.inputs) {
      const ValueId root = id == kNone ? kNone : program_.root[static_cast<size_t>(id)];
      const auto index = static_cast<size_t>(root);
      if (root != kNone && (program_.locations[index].in == Location::In::caller || staged_.contains(root)))
        patches_[root].push_back({number, call.in.size()});
      call.in.push_back(root == kNone ? nullptr : addresses_[index]);
    }
    for (const ValueId id : node.outputs) call.out.push_back(addresses_[static_cast<size_t>(id)]);
  }
  if (step.workspace_buffer >= 0)
    call.workspace = places.arena + program_.solution.offsets[static_cast<size_t>(step.workspace_buffer)];
}

void Executor::order_queues() {
  Waits waits = find_waits(program_);
  const auto mark = [&](size_t other) {
    if (is_on_gpu() && !calls_[other].done) calls_[other].done = std::make_unique<gpu::Event>();
  };
  for (size_t i = 0; i < calls_.size(); ++i) {
    std::ranges::for_each(waits.before[i], mark);
    calls_[i].waits = std::move(waits.before[i]);
  }
  std::ranges::for_each(waits.at_end, mark);
  last_waits_ = std::move(waits.at_end);
  if (!is_on_gpu()) return;
  begun_ = std::make_unique<gpu::Event>();
  for (const Queue other : {Queue::in, Queue::out, Queue::exchange}) {
    const auto is_its = [&](const Step& step) { return step.queue == other; };
    if (std::ranges::any_of(program_.steps, is_its)) forked_.push_back(queue(other));
  }
}

void Executor::connect(distributed::ProcessGroup& group, HostQueue* queue) {
  group_ = &group;
  host_queue_ = queue;
}

void Executor::set_input_pointers(ValueId root, void* place) {
  const auto found = patches_.find(root);
  if (found == patches_.end()) return;
  for (const Patch& patch : found->second) calls_[patch.call].in[patch.input] = place;
}

ValueId Executor::input(std::string_view name) const {
  const auto found = program_.inputs.find(name);
  return found == program_.inputs.end() ? kNone : found->second.id;
}

void Executor::bind_input(std::string_view name, const void* data) {
  const ValueId id = input(name);
  if (id == kNone) internal_error("the program has no input '{}'", name);
  bind_input(id, data);
}

void Executor::bind_input(ValueId input, const void* data) {
  if (const auto staged = staged_.find(input); staged != staged_.end()) {
    staged->second.from = data;
  } else {
    set_input_pointers(input, const_cast<void*>(data));
  }
}

void Executor::set_scalar(std::string_view name, float value) {
  const auto found = program_.inputs.find(name);
  if (found == program_.inputs.end()) return;
  HEARTH_CHECK(found->second.scalar_offset >= 0);
  std::memcpy(scalars_.data() + found->second.scalar_offset, &value, sizeof value);
}

void Executor::Staged::copy_to(std::byte* host) const {
  if (from != nullptr) std::memcpy(host + offset, from, static_cast<size_t>(num_bytes));
}

void Executor::stage_ahead() {
  if (!is_on_gpu() || program_.large_bytes == 0) return;
  std::byte* host = bindings_.staging->fill();
  for (auto& [id, staged] : staged_) {
    staged.sent_from = staged.from;
    if (is_large(staged)) staged.copy_to(host);
  }
  bindings_.staging->send(0, program_.large_bytes);
  staged_fill_ = bindings_.staging->num_fills();
}

/// True if the inputs that stage_ahead() copied are the bound ones, and no other program has filled the
/// staging buffer since.
bool Executor::has_staged_inputs() const {
  return staged_fill_ == bindings_.staging->num_fills() &&
         std::ranges::all_of(staged_, [&](const auto& item) {
           return !is_large(item.second) || item.second.sent_from == item.second.from;
         });
}

size_t Executor::stage_inputs() {
  if (!is_on_gpu()) return 0;
  copies_.clear();
  const bool ahead = has_staged_inputs();
  std::byte* host = ahead ? bindings_.staging->host() : bindings_.staging->fill();
  for (const auto& [id, staged] : staged_) {
    if (!ahead || !is_large(staged)) staged.copy_to(host);
  }
  bindings_.staging->send(ahead ? program_.large_bytes : 0, program_.staging_bytes);
  staged_fill_ = -1;
  const size_t half = bindings_.staging->arrive(*queue(Queue::compute));
  for (const auto& [id, staged] : staged_)
    set_input_pointers(id, bindings_.staging->on_gpu(half) + staged.offset);
  return half;
}

void Executor::run_collective(void* call) {
  const auto* own = static_cast<const Call*>(call);
  const ir::KernelArgs args{.in = own->in, .out = own->out, .group = own->executor->group_};
  if (ReplayCheck* check = own->executor->check_.get()) return check->run_collective_once(*own->step, args);
  own->step->kernel.run(args);
}

/// Makes a queue wait for a call of another queue. On the CPU, only collectives run in another queue.
void Executor::wait_for(const Call& call, gpu::Stream* waiting) {
  if (waiting != nullptr) {
    waiting->wait(*call.done);
  } else if (call.step->on_host && host_queue_ != nullptr) {
    host_queue_->wait(call.num_added);
  }
}

void Executor::exchange(Call& call) {
  if (is_on_gpu()) {
    queue(Queue::exchange)->call(run_collective, &call);
  } else if (host_queue_ != nullptr) {
    call.num_added = host_queue_->add(run_collective, &call);
  } else {
    run_collective(&call);
  }
}

void Executor::run_call(Call& call, ThreadPool& threads) {
  gpu::Stream* stream = queue(call.step->queue);
  allow(call.step->seconds);
  for (const size_t other : call.waits) wait_for(calls_[other], stream);
  if (call.step->on_host) {
    exchange(call);
  } else {
    call.step->kernel.run({.in = call.in,
                           .out = call.out,
                           .workspace = call.workspace,
                           .threads = &threads,
                           .group = group_,
                           .stream = stream});
  }
  if (call.done) stream->record(*call.done);
}

/// Begins a run: makes the other queues wait for the compute queue, so that their work starts after that of
/// earlier runs.
void Executor::fork() {
  if (forked_.empty()) return;
  queue(Queue::compute)->record(*begun_);
  for (gpu::Stream* other : forked_) other->wait(*begun_);
}

/// Ends a run: makes the compute queue wait for the other queues, so that all work of the run is done when it
/// is idle.
void Executor::join() {
  for (const size_t other : last_waits_) wait_for(calls_[other], queue(Queue::compute));
}

/// Extends the timeout of the compute queue. It is the queue that the host waits for, and it waits for all
/// other queues.
void Executor::allow(double seconds) {
  if (is_on_gpu()) queue(Queue::compute)->allow(allowed_seconds(seconds), wait_seconds_);
}

void Executor::queue_calls(ThreadPool& threads) {
  fork();
  for (Call& call : calls_) run_call(call, threads);
  join();
}

bool Executor::may_record() const {
  const Recorder* recorder = bindings_.recorder;
  return can_record_ && recorder != nullptr && recorder->when() != RecordMode::never &&
         recorder->fault().empty();
}

/// Returns why the program cannot be recorded: vendors' libraries differ in which collectives can be, and
/// work on the host cannot be. Empty if nothing prevents it.
std::string Executor::obstacle() const {
  if (has_gpu_collectives(program_)) return "collectives between GPUs";
  if (program_.num_host_nodes > 0)
    return fmt::format("{} nodes that the host computes instead of the GPU", program_.num_host_nodes);
  return "";
}

/// Records the work of a run, or turns recording off.
void Executor::record(ThreadPool& threads, size_t half) {
  Recorder& recorder = *bindings_.recorder;
  if (!recorder.start(key_)) return;
  gpu::Stream& stream = *queue(Queue::compute);
  std::string why;
  const HangGuard guard(kRecordingSeconds, "the runtime of this GPU hangs while it records a step");
  try {
    stream.start_recording();
    queue_calls(threads);
    recordings_[half] = stream.finish_recording(&why);
  } catch (const gpu::DeviceError& error) {
    why = error.what();
  }
  if (recordings_[half] != nullptr) return;
  if (recorder.when() == RecordMode::always) {
    user_error(
        "the runtime of this GPU cannot record a step ({}), but record=always requires it; set record=auto",
        why);
  }
  disable_recording(fmt::format("the runtime of this GPU cannot record a step ({})", why));
}

void Executor::replay(size_t half) {
  allow(program_.seconds());
  ++num_replays_[half];
  queue(Queue::compute)->replay(*recordings_[half]);
}

void Executor::disable_recording(std::string fault) {
  recordings_ = {};
  bindings_.recorder->turn_off(std::move(fault), key_);
}

/// Describes how a replay differs from queued execution; empty if it does not.
std::string Executor::replay_fault(size_t half) {
  const auto describe = [&](const std::string& what) {
    const int64_t number = num_replays_[half];
    if (number == 1) return "its first replay " + what;
    return fmt::format("its replay number {} {}; steps before it may be wrong, too", number, what);
  };
  try {
    const HangGuard guard(kRecordingSeconds, "the runtime of this GPU hangs while it replays a step");
    replay(half);
  } catch (const gpu::DeviceError& error) {
    return describe(fmt::format("failed: {}", error.what()));
  }
  try {
    wait();
  } catch (const gpu::DeviceError& error) {
    disable_recording(describe(fmt::format("failed: {}", error.what())));
    throw;
  }
  const std::string difference = check_->difference();
  return difference.empty() ? "" : describe("computed " + difference);
}

bool Executor::is_check_due(size_t half) const {
  return bindings_.recorder->when() == RecordMode::automatic &&
         (std::ranges::count(kCheckedReplays, num_replays_[half] + 1) > 0 || Clock::now() >= next_check_);
}

void Executor::check_replay(ThreadPool& threads, size_t half) {
  const Clock::time_point start = Clock::now();
  auto check = std::make_unique<ReplayCheck>(program_, bindings_, addresses_);
  if (check->needed_bytes() > available_memory_bytes()) {
    if (num_replays_[half] > 0) return replay(half);
    recordings_ = {};
    bindings_.recorder->turn_off(
        fmt::format("checking its first replay needs {} of host memory, more than is free",
                    human_bytes(check->needed_bytes())));
    return queue_calls(threads);
  }
  wait();
  check->save();
  check_ = std::move(check);
  // This run is the one in which collectives exchange data with other workers.
  queue_calls(threads);
  wait();
  check_->store_result_hashes();
  check_->restore();
  if (std::string fault = replay_fault(half); !fault.empty()) {
    disable_recording(std::move(fault));
    check_->restore();
    queue_calls(threads);
    wait();
  }
  check_.reset();
  const Clock::time_point end = Clock::now();
  next_check_ = end + std::max<Clock::duration>(kBetweenChecks, kMinPauseFactor * (end - start));
}

void Executor::queue_run(ThreadPool& threads, size_t half) {
  // The first run is never recorded, because libraries do setup in it that cannot be recorded.
  if (may_record() && num_runs_++ > 0 && !recordings_[half]) record(threads, half);
  if (!recordings_[half] || !may_record()) return queue_calls(threads);
  if (is_check_due(half)) {
    check_replay(threads, half);
    if (may_record()) bindings_.recorder->finish(key_);
    return;
  }
  try {
    replay(half);
  } catch (const gpu::DeviceError& error) {
    disable_recording(fmt::format("replay number {} failed: {}", num_replays_[half], error.what()));
    queue_calls(threads);
  }
}

void Executor::start(ThreadPool& threads) {
  const size_t half = stage_inputs();
  if (!is_on_gpu()) return queue_calls(threads);
  queue_run(threads, half);
  bindings_.staging->release(*queue(Queue::compute));
}

void Executor::wait() {
  if (!is_on_gpu()) return;
  allow(0);
  queue(Queue::compute)->synchronize();
}

void Executor::run(ThreadPool& threads) {
  start(threads);
  wait();
}

void Executor::run_with(ThreadPool& threads, FunctionRef<void(size_t, double)> after) {
  stage_inputs();
  fork();
  gpu::Event start(gpu::Event::Kind::timed), end(gpu::Event::Kind::timed);
  for (Call& call : calls_) {
    const bool on_gpu = is_on_gpu() && !call.step->on_host;
    const Clock::time_point before = Clock::now();
    if (on_gpu) queue(call.step->queue)->record(start);
    run_call(call, threads);
    if (on_gpu) queue(call.step->queue)->record(end);
    if (is_on_gpu()) queue(call.step->queue)->synchronize();
    if (call.step->on_host) wait_for(call, nullptr);
    const double seconds =
        on_gpu ? end.seconds_since(start) : std::chrono::duration<double>(Clock::now() - before).count();
    copies_.clear();
    for (size_t i = 0; i < call.step->num_nodes; ++i) after(call.step->node + i, i == 0 ? seconds : 0);
  }
  join();
  wait();
  if (is_on_gpu()) bindings_.staging->release(*queue(Queue::compute));
}

void Executor::read(ValueId id, void* host) {
  const std::byte* place = addresses_[static_cast<size_t>(id)];
  const int64_t num_bytes = program_.graph.type(id).num_bytes();
  if (is_on_gpu()) {
    queue(Queue::compute)->copy_out(host, place, num_bytes);
  } else {
    std::memcpy(host, place, static_cast<size_t>(num_bytes));
  }
}

const void* Executor::data(ValueId id) const {
  const auto index = static_cast<size_t>(id);
  const Location::In in = program_.locations[index].in;
  if (!is_on_gpu() || in == Location::In::host_arena || in == Location::In::host_weights)
    return addresses_[index];
  const auto [copy, is_new] = copies_.try_emplace(id);
  if (is_new) {
    gpu::Stream& stream = *queue(Queue::compute);
    copy->second.resize(static_cast<size_t>(program_.graph.type(id).num_bytes()));
    stream.copy_out(copy->second.data(), addresses_[index], std::ssize(copy->second));
    stream.synchronize();
  }
  return copy->second.data();
}

}  // namespace hearth::exec
