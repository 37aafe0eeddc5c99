#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace hearth::exec {

/// A queue of calls on the host: a separate thread runs them in order, concurrently with the caller.
class HostQueue {
 public:
  HostQueue();
  /// Waits until all queued calls are done.
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  /// Queues a call, which must not throw. Returns the number of calls added so far, including this one.
  int64_t add(void (*function)(void*), void* argument);
  /// Waits until the first `count` calls are done.
  void wait(int64_t count);
  /// Total seconds blocked in wait().
  double waited_seconds() const { return waited_seconds_; }

 private:
  struct Call {
    void (*function)(void*);
    void* argument;
  };
  void work();

  std::mutex mutex_;
  std::condition_variable added_, done_;
  std::deque<Call> calls_;
  int64_t num_added_ = 0, num_done_ = 0;
  double waited_seconds_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace hearth::exec
