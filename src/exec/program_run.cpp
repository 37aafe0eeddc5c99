#include <algorithm>
#include <cstring>

#include "backend/gpu/device.h"
#include "exec/device/staging.h"
#include "exec/host_queue.h"
#include "exec/program.h"

namespace hearth::exec {
namespace {

/// How long a GPU may take for what it was given; where it meets others, which wait while one evaluates; and
/// with collectives of the host, whose own deadline comes first.
constexpr double kGpuSeconds = 60, kMeetSeconds = 3600, kHostSeconds = 1e6;

}  // namespace

void Program::stage(const Staged& staged, ir::ValueId id, std::byte* host) const {
  if (staged.from != nullptr)
    std::memcpy(host + staged.offset, staged.from, static_cast<size_t>(graph_.type(id).num_bytes()));
}

void Program::stage_ahead() {
  if (staging_ == nullptr || large_bytes_ == 0) return;
  std::byte* host = staging_->fill();
  for (auto& [id, staged] : staged_) {
    staged.sent_from = staged.from;
    if (is_large(staged)) stage(staged, id, host);
  }
  staging_->send(0, large_bytes_);
  ahead_ = staging_->num_fills();
}

/// Whether what was sent ahead is what is bound, and no other program was run since.
bool Program::is_ahead() const {
  return ahead_ == staging_->num_fills() && std::ranges::all_of(staged_, [&](const auto& item) {
           return !is_large(item.second) || item.second.sent_from == item.second.from;
         });
}

size_t Program::stage_inputs() {
  if (staging_ == nullptr) return 0;
  copies_.clear();
  const bool ahead = is_ahead();
  std::byte* host = ahead ? staging_->host() : staging_->fill();
  for (const auto& [id, staged] : staged_) {
    if (!ahead || !is_large(staged)) stage(staged, id, host);
  }
  staging_->send(ahead ? large_bytes_ : 0, staging_bytes_);
  ahead_ = -1;
  const size_t half = staging_->arrive(*queue(Queue::compute));
  for (const auto& [id, staged] : staged_) point_at(id, staging_->on_gpu(half) + staged.offset);
  return half;
}

void Program::HostCall::make(void* call) {
  const auto* own = static_cast<const HostCall*>(call);
  const Step& step = own->program->steps_[own->step];
  step.kernel.run({.in = step.in, .out = step.out, .group = own->program->group_});
}

/// On the processor nothing but a collective is left to wait for.
void Program::wait_for(const Step& step, gpu::Stream* waiting) {
  if (waiting != nullptr) {
    waiting->wait(*step.done);
  } else if (step.host_call >= 0 && host_queue_ != nullptr) {
    host_queue_->wait(step.num_added);
  }
}

void Program::exchange(Step& step) {
  HostCall& call = host_calls_[static_cast<size_t>(step.host_call)];
  if (staging_ != nullptr) {
    queue(step.queue)->call(HostCall::make, &call);
  } else if (host_queue_ != nullptr) {
    step.num_added = host_queue_->add(HostCall::make, &call);
  } else {
    HostCall::make(&call);
  }
}

void Program::run_step(Step& step, ThreadPool& threads) {
  gpu::Stream* stream = queue(step.queue);
  for (const size_t other : step.waits) wait_for(steps_[other], stream);
  if (step.host_call >= 0) {
    exchange(step);
  } else {
    step.kernel.run({.in = step.in,
                     .out = step.out,
                     .workspace = step.workspace,
                     .threads = &threads,
                     .group = group_,
                     .stream = stream});
  }
  if (step.done) stream->record(*step.done);
}

/// What is queued elsewhere belongs to this run from here ...
void Program::fork() {
  if (forked_.empty()) return;
  queue(Queue::compute)->record(*begun_);
  for (gpu::Stream* other : forked_) other->wait(*begun_);
}

/// ... to here.
void Program::join() {
  for (const size_t other : last_waits_) wait_for(steps_[other], queue(Queue::compute));
}

void Program::queue_steps(ThreadPool& threads) {
  fork();
  for (Step& step : steps_) run_step(step, threads);
  join();
}

void Program::record(ThreadPool& threads, size_t half) {
  gpu::Stream& stream = *queue(Queue::compute);
  stream.start_recording();
  queue_steps(threads);
  recordings_[half] = stream.finish_recording();
  may_record_ = recordings_[half] != nullptr;
}

void Program::start(ThreadPool& threads) {
  const size_t half = stage_inputs();
  if (staging_ == nullptr) return queue_steps(threads);
  // What libraries set up when they are first used cannot be recorded.
  const bool records = may_record_ && num_host_nodes_ == 0 && num_runs_++ > 0;
  if (records && !recordings_[half]) record(threads, half);
  if (recordings_[half]) {
    queue(Queue::compute)->replay(*recordings_[half]);
  } else {
    queue_steps(threads);
  }
  staging_->release(*queue(Queue::compute));
}

void Program::wait() {
  if (staging_ == nullptr) return;
  const double patience = meets_on_gpu_ ? kMeetSeconds : has_collectives() ? kHostSeconds : kGpuSeconds;
  queue(Queue::compute)->synchronize(patience);
}

void Program::run(ThreadPool& threads) {
  start(threads);
  wait();
}

void Program::run_with(ThreadPool& threads, FunctionRef<void(size_t)> after) {
  stage_inputs();
  fork();
  for (Step& step : steps_) {
    run_step(step, threads);
    if (staging_ != nullptr) queue(step.queue)->synchronize();
    if (step.host_call >= 0) wait_for(step, nullptr);
    copies_.clear();
    for (size_t i = 0; i < step.num_nodes; ++i) after(step.node + i);
  }
  join();
  wait();
  if (staging_ != nullptr) staging_->release(*queue(Queue::compute));
}

bool Program::is_on_host(ir::ValueId id) const {
  const auto index = static_cast<size_t>(id);
  const int storage = storage_of_value_[index];
  if (storage >= 0) return places_[static_cast<size_t>(storage)].on_host;
  const ir::Value& value = graph_.values[static_cast<size_t>(root_[index])];
  return ir::is_persistent(value.role) && layout_.at(value.name).on_host;
}

void Program::read(ir::ValueId id, void* host) {
  const auto* place = static_cast<const std::byte*>(pointers_[static_cast<size_t>(id)]);
  const int64_t num_bytes = graph_.type(id).num_bytes();
  if (staging_ == nullptr) {
    std::memcpy(host, place, static_cast<size_t>(num_bytes));
  } else {
    queue(Queue::compute)->copy_out(host, place, num_bytes);
  }
}

const void* Program::data(ir::ValueId id) const {
  const void* place = pointers_[static_cast<size_t>(id)];
  if (staging_ == nullptr || is_on_host(id)) return place;
  const auto [copy, is_new] = copies_.try_emplace(id);
  if (is_new) {
    gpu::Stream& stream = *queue(Queue::compute);
    copy->second.resize(static_cast<size_t>(graph_.type(id).num_bytes()));
    stream.copy_out(copy->second.data(), static_cast<const std::byte*>(place), std::ssize(copy->second));
    stream.synchronize();
  }
  return copy->second.data();
}

}  // namespace hearth::exec
