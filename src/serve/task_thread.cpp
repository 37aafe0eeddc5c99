#include "serve/task_thread.h"

namespace hearth::serve {
namespace {

constexpr size_t kMaxTasks = 64;

}  // namespace

TaskThread::TaskThread() : thread_([this] { work(); }) {}

TaskThread::~TaskThread() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TaskThread::post(net::Exchange exchange, net::HttpHandler handler) {
  {
    const std::lock_guard lock(mutex_);
    if (tasks_.size() >= kMaxTasks)
      throw net::HttpFault{429, "the queue of requests is full; try again later"};
    tasks_.push_back({std::move(exchange), std::move(handler)});
  }
  changed_.notify_all();
}

void TaskThread::work() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_ending_ || !tasks_.empty(); });
    if (is_ending_) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    if (task.exchange->is_open()) net::handle_request(task.exchange, task.handler);
  }
}

}  // namespace hearth::serve
