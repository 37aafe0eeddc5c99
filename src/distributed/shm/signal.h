#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace hearth::distributed {

using Deadline = std::chrono::steady_clock::time_point;

/// A counter in shared memory that one thread increments and other threads wait for. Zeroed memory is a
/// Signal with count 0. Counts wrap at 2^32, so a waiter may be at most 2^31 behind.
class Signal {
 public:
  /// Increments the count and wakes waiters.
  void raise() { set(count_.load(std::memory_order_relaxed) + 1); }
  /// Sets the count and wakes waiters, which then see all earlier writes of this thread (release/acquire).
  void set(uint32_t count);
  bool has_reached(uint32_t count) const {
    return static_cast<int32_t>(count_.load(std::memory_order_acquire) - count) >= 0;
  }
  /// Waits until the count is reached or `until` has passed: spins for some microseconds, then sleeps.
  /// Returns whether the count was reached; may return false early.
  bool wait(uint32_t count, Deadline until);

 private:
  std::atomic<uint32_t> count_;
  std::atomic<uint32_t> num_sleepers_;
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace hearth::distributed
