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

/// Part `index` of `parts` of [0, count): contiguous, sizes differ by at most one.
Range split_range(int64_t count, int parts, int index);

/// How many parts a sum over `work` elements is cut into, at least `grain` of them each: by the work alone,
/// never by the number of threads, so that the sum has the same bits on any number of them. At most 16.
int num_sum_parts(int64_t work, int64_t grain);

/// Makes the main thread's stack as large as the program needs, as other threads' stacks are from their
/// start: one that cannot grow where an address space is limited (ulimit -v) ends a process without a word.
/// std::bad_alloc where there is no room for it. The first thing a program does.
void take_stack();

/// A fixed number of threads, the caller among them. Waiting threads spin briefly, then yield, then sleep, so
/// a busy machine slows a run no more than its share. `run` is not reentrant. What a body throws reaches the
/// caller when all have finished.
class ThreadPool {
 public:
  /// UserError when the system does not grant as many threads.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }
  /// Calls body(thread) once on each thread and returns when all have finished.
  void run(FunctionRef<void(int)> body);
  /// Splits [0, count) into one contiguous part per thread; work below `grain` per thread uses fewer threads.
  void parallel_for(int64_t count, int64_t grain, FunctionRef<void(Range)> body);
  /// Calls body(part) once for each of [0, parts); neighbors go to one thread.
  void for_parts(int parts, FunctionRef<void(int)> body);
  /// Calls body(task, thread) once for each task of [0, count) on the first `num_threads` threads. Each takes
  /// the next task when it comes free, so that a thread which the machine holds up holds up little: what a
  /// task writes must not depend on its thread.
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

/// Processors this process may use (its affinity mask), at least 1.
int num_available_cpus();

}  // namespace hearth
