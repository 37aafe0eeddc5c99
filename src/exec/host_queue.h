#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace hearth::exec {

/// A queue of the processor: calls that a thread of its own makes in order, beside the caller's work.
class HostQueue {
 public:
  HostQueue();
  /// What was added is done first.
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  /// Returns how many calls were added, this one included. The function must not throw.
  int64_t add(void (*function)(void*), void* argument);
  /// Returns when so many of them are done.
  void wait(int64_t count);
  /// That wait() took in all.
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
