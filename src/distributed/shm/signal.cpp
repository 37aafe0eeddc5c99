#include "distributed/shm/signal.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace hearth::distributed {
namespace {

/// Number of polls before sleeping: a rank that is running usually answers within this time.
constexpr int kLooks = 256;
/// Number of polls before sched_yield(): with more threads than processors, the awaited thread may need this
/// processor.
constexpr int kLooksBeforeYield = 200;

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Calls the system call futex. std::atomic::wait is not used because it has no timeout and works within one
/// process only.
long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

void Signal::set(uint32_t count) {
  count_.store(count, std::memory_order_seq_cst);
  if (num_sleepers_.load(std::memory_order_seq_cst) > 0) futex(count_, FUTEX_WAKE, INT_MAX, nullptr);
}

bool Signal::wait(uint32_t count, Deadline until) {
  for (int look = 0; look < kLooks; ++look) {
    if (has_reached(count)) return true;
    look < kLooksBeforeYield ? pause_processor() : static_cast<void>(sched_yield());
  }
  const auto left = until - std::chrono::steady_clock::now();
  if (left.count() <= 0) return has_reached(count);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec timeout{
      .tv_sec = seconds.count(),
      .tv_nsec = std::chrono::duration_cast<std::chrono::nanoseconds>(left - seconds).count()};
  num_sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t seen = count_.load(std::memory_order_seq_cst);
  if (static_cast<int32_t>(seen - count) < 0) futex(count_, FUTEX_WAIT, seen, &timeout);
  num_sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  return has_reached(count);
}

}  // namespace hearth::distributed
