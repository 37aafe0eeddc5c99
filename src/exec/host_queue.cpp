#include "exec/host_queue.h"

#include <chrono>

namespace hearth::exec {

HostQueue::HostQueue() : thread_([this] { work(); }) {}

HostQueue::~HostQueue() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  added_.notify_one();
  thread_.join();
}

int64_t HostQueue::add(void (*function)(void*), void* argument) {
  int64_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back({function, argument});
    count = ++num_added_;
  }
  added_.notify_one();
  return count;
}

void HostQueue::wait(int64_t count) {
  std::unique_lock lock(mutex_);
  if (num_done_ >= count) return;
  const auto start = std::chrono::steady_clock::now();
  done_.wait(lock, [&] { return num_done_ >= count; });
  waited_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void HostQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    added_.wait(lock, [&] { return ends_ || !calls_.empty(); });
    if (calls_.empty()) return;
    const Call call = calls_.front();
    calls_.pop_front();
    lock.unlock();
    call.function(call.argument);
    lock.lock();
    ++num_done_;
    done_.notify_one();
  }
}

}  // namespace hearth::exec
