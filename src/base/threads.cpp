// A fork-join thread pool. run() publishes the body, sets the number of pending workers and increments a
// generation counter; workers wait for a new generation, call the body, and decrement the pending count.
// Waiting spins, then yields, then (workers only) sleeps on a condition variable. A worker announces that
// it sleeps (asleep_) before it checks the generation again, and run() reads asleep_ after it has
// incremented the generation; both are sequentially consistent, so no wake-up is lost.
#include "base/threads.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <new>
#include <system_error>

#include "base/error.h"

namespace hearth {
namespace {

constexpr int kSpins = 4000;
constexpr int kYields = 200;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Waits by spinning, then yielding, until `ready` returns true. Returns false if it is still false after
/// kSpins spins and kYields yields.
template <typename Ready>
bool wait_briefly(Ready ready) {
  for (int i = 0; i < kSpins; ++i) {
    if (ready()) return true;
    pause_cpu();
  }
  for (int i = 0; i < kYields; ++i) {
    if (ready()) return true;
    sched_yield();
  }
  return ready();
}

constexpr size_t kStackBytes = size_t{1} << 20;

/// Writes to the lowest address of a large stack frame, so that the kernel maps the stack down to that page.
/// noinline: the frame must be allocated by this function. The asm statement may read the array, which keeps
/// the compiler from removing the write.
[[gnu::noinline]] void touch_stack() {
  std::byte stack[kStackBytes];
  stack[0] = std::byte{0};
  __asm__ volatile("" ::"r"(stack) : "memory");
}

}  // namespace

void touch_stack_pages() {
  void* const room = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw std::bad_alloc();
  munmap(room, kStackBytes);
  touch_stack();
}

Range split_range(int64_t count, int parts, int index) {
  const int64_t base = count / parts;
  const int64_t extra = count % parts;
  const int64_t begin = base * index + std::min<int64_t>(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

int num_sum_parts(int64_t work, int64_t grain) {
  constexpr int64_t kMaxParts = 16;
  return static_cast<int>(std::clamp<int64_t>(work / grain, 1, kMaxParts));
}

ThreadPool::ThreadPool(int num_threads) {
  try {
    for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& error) {
    const size_t num_started = workers_.size() + 1;
    stop();
    user_error(
        "only {1} of {0} threads could be started: {2}; set threads={3}, or raise the limits (ulimit -u, "
        "ulimit -v)",
        num_threads, num_started, error.code().message(), num_started);
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_ = true;
  {
    const std::lock_guard lock(mutex_);
    ++generation_;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(FunctionRef<void(int)> body) {
  if (workers_.empty()) return body(0);
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto guarded = [&](int thread) {
    try {
      body(thread);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  };
  const FunctionRef<void(int)> every = guarded;
  body_.store(&every, std::memory_order_relaxed);
  pending_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst) > 0) {
    const std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  guarded(0);
  while (!wait_briefly([this] { return pending_.load(std::memory_order_acquire) == 0; })) {
  }
  if (error) std::rethrow_exception(error);
}

void ThreadPool::work(int thread) {
  uint64_t seen = 0;
  while (true) {
    const auto changed = [&] { return generation_.load(std::memory_order_seq_cst) != seen; };
    if (!wait_briefly(changed)) {
      std::unique_lock lock(mutex_);
      asleep_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, changed);
      asleep_.fetch_sub(1, std::memory_order_relaxed);
    }
    ++seen;
    if (stopping_) return;
    (*body_.load(std::memory_order_relaxed))(thread);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, FunctionRef<void(Range)> body) {
  const int64_t wanted = grain <= 0 ? size() : std::max<int64_t>(1, count / grain);
  const int parts = static_cast<int>(std::min<int64_t>(size(), wanted));
  if (parts <= 1) return body({0, count});
  run([&](int thread) {
    if (thread < parts) body(split_range(count, parts, thread));
  });
}

void ThreadPool::for_parts(int parts, FunctionRef<void(int)> body) {
  parallel_for(parts, 1, [&](Range mine) {
    for (int64_t part = mine.begin; part < mine.end; ++part) body(static_cast<int>(part));
  });
}

void ThreadPool::run_tasks(int64_t count, int num_threads, FunctionRef<void(int64_t, int)> body) {
  std::atomic<int64_t> next{0};
  const auto take_tasks = [&](int thread) {
    if (thread >= num_threads) return;
    for (int64_t task = next++; task < count; task = next++) body(task, thread);
  };
  count == 1 ? take_tasks(0) : run(take_tasks);
}

int num_available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace hearth
