#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace hearth {

/// A half-open range of work: [begin, end).
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// Returns part `index` of [0, count) split into `parts` contiguous parts whose sizes differ by at most one.
Range split_range(int64_t count, int parts, int index);

/// Returns the number of parts into which a sum over `work` elements is split: at most 16, each of at least
/// `grain` elements. The number does not depend on the number of threads, so results have the same bits for
/// any number of threads.
int num_sum_parts(int64_t work, int64_t grain);

/// Maps all stack pages that the main thread will need. Otherwise, in a process with limited address space
/// (ulimit -v), the kernel would kill the process without a message when the stack cannot grow.
/// std::bad_alloc if there is no memory. Call this first in main().
void touch_stack_pages();

/// A fixed number of threads, one of which is the caller. Waiting threads spin briefly, then yield, then
/// sleep, so that other programs on the machine do not slow a run out of proportion. `run` is not reentrant.
/// An exception from a body is rethrown in the caller after all threads have finished.
class ThreadPool {
 public:
  /// Starts num_threads - 1 threads; UserError if the system refuses.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }
  /// Calls body(thread) once on each thread and returns when all have finished.
  void run(FunctionRef<void(int)> body);
  /// Splits [0, count) into one contiguous part per thread; uses fewer threads if a part would have
  /// less than `grain` elements.
  void parallel_for(int64_t count, int64_t grain, FunctionRef<void(Range)> body);
  /// Calls body(part) once for each part in [0, parts); adjacent parts run on the same thread.
  void for_parts(int parts, FunctionRef<void(int)> body);
  /// Calls body(task, thread) once for each task in [0, count) on the first `num_threads` threads. An idle
  /// thread takes the next task (dynamic scheduling), so that a delayed thread delays the others little. The
  /// result of a task must not depend on the thread that runs it.
  void run_tasks(int64_t count, int num_threads, FunctionRef<void(int64_t, int)> body);

 private:
  void work(int thread);
  void stop();

  std::vector<std::thread> workers_;
  std::atomic<const FunctionRef<void(int)>*> body_{nullptr};
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> pending_{0};
  std::atomic<int> asleep_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

/// Returns the number of processors in this process's affinity mask, at least 1.
int num_available_cpus();

}  // namespace hearth
