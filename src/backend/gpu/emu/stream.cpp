#include "backend/gpu/emu/stream.h"

#include <utility>

#include "base/file.h"
#include "base/philox.h"

namespace hearth::emu {
namespace {

int64_t num_threads(const Dim3& size) { return int64_t{size.x} * size.y * size.z; }

}  // namespace

void Stream::enqueue(Work work) {
  if (records()) {
    const bool is_lost = recording_->num_nodes++ == gpu_.settings.lost_node;
    recording_->calls.push_back([this, work = std::move(work), is_lost, all = recording_.get()] {
      if (!is_lost || all->num_replays <= gpu_.settings.num_right_replays) enqueue(work);
    });
    return;
  }
  queue_.push_back(std::move(work));
  if (gpu_.settings.order_seed != 0) run_random_stream();
}

void Stream::run_random_stream() {
  const uint32_t choice = philox4x32(gpu_.settings.order_seed, {gpu_.num_choices++, 0, 0, 0})[0];
  const size_t chosen = choice % (gpu_.streams.size() + 1);
  if (chosen < gpu_.streams.size()) gpu_.streams[chosen]->run_all();
}

std::shared_ptr<Mark> Stream::record() {
  auto mark = std::make_shared<Mark>();
  if (records()) {
    mark->recording = recording_;
    recording_->calls.push_back([this, mark] { set(mark); });
  } else {
    set(mark);
  }
  return mark;
}

void Stream::set(const std::shared_ptr<Mark>& mark) {
  mark->stream = this;
  mark->end = end() + 1;
  enqueue([this, mark] { mark->passed = now(); });
}

std::chrono::steady_clock::time_point Stream::now() const {
  if (!gpu_.settings.counts_threads) return std::chrono::steady_clock::now();
  return std::chrono::steady_clock::time_point(std::chrono::microseconds(gpu_.num_threads));
}

void Stream::wait(std::shared_ptr<Mark> mark) {
  const std::shared_ptr<Recording> recording = mark->recording.lock();
  if (!records() && recording && recording->open) recording_ = recording;
  if (!records()) return wait_until(mark->stream, mark->end);
  if (recording != recording_) throw Fault("a recording waits for an event outside of it");
  recording_->calls.push_back([this, mark = std::move(mark)] { wait_until(mark->stream, mark->end); });
}

void Stream::wait_until(Stream* stream, uint64_t end) {
  enqueue([stream, end] { stream->run_until(end); });
}

std::shared_ptr<Recording> Stream::finish_recording() {
  recording_->open = false;
  return std::exchange(recording_, nullptr);
}

void Stream::launch(const Grid& grid, std::function<void()> kernel) {
  enqueue([this, grid, kernel = std::move(kernel)] {
    const int64_t number = gpu_.num_launches++;
    if (number == gpu_.settings.hanging_launch) gpu_.hangs = true;
    if (gpu_.hangs) return;
    if (gpu_.settings.no_code) throw Fault("no kernel image is available");
    if (number == gpu_.settings.faulty_launch) throw Fault("this launch is configured to fail");
    if (const std::string& file = gpu_.settings.broken_while; !file.empty() && fs::exists(file))
      throw Fault("the GPU is broken");
    gpu_.num_threads += num_threads(grid.blocks) * num_threads(grid.threads);
    run(grid, kernel);
  });
}

void Stream::run_until(uint64_t end) {
  while (first_ < end && !queue_.empty() && !gpu_.hangs) {
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    ++first_;
    work();
  }
}

}  // namespace hearth::emu
