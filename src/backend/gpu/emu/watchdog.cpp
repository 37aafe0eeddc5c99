#include "backend/gpu/emu/watchdog.h"

#include <pthread.h>
#include <csignal>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace hearth::emu {
namespace {

using Clock = std::chrono::steady_clock;

/// Ignored where nobody listens for it.
constexpr int kSignal = SIGURG;
constexpr auto kPeriod = std::chrono::milliseconds(20);

thread_local void (*overdue_here)() = nullptr;

struct Entry {
  const void* owner;
  pthread_t thread;
  const std::atomic<uint64_t>* progress;
  Clock::duration deadline;
  uint64_t seen;
  Clock::time_point since;
};

/// Looks after every grid of the process, in a thread of its own that ends with the process.
class Watchdog {
 public:
  static Watchdog& get() {
    static auto* one = new Watchdog;
    return *one;
  }
  void add(const Entry& entry) {
    const std::scoped_lock lock(mutex_);
    entries_.push_back(entry);
    changed_.notify_one();
  }
  void remove(const void* owner) {
    const std::scoped_lock lock(mutex_);
    std::erase_if(entries_, [&](const Entry& entry) { return entry.owner == owner; });
  }

 private:
  Watchdog() {
    struct sigaction action = {};
    action.sa_handler = [](int) {
      if (overdue_here != nullptr) overdue_here();
    };
    action.sa_flags = SA_NODEFER | SA_RESTART;
    sigaction(kSignal, &action, nullptr);
    std::thread([this] { watch(); }).detach();
  }
  [[noreturn]] void watch() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !entries_.empty(); });
      for (Entry& entry : entries_) look(entry);
      changed_.wait_for(lock, kPeriod);
    }
  }
  static void look(Entry& entry) {
    const uint64_t now = entry.progress->load(std::memory_order_relaxed);
    if (now != entry.seen) {
      entry.seen = now;
      entry.since = Clock::now();
    } else if (Clock::now() - entry.since > entry.deadline) {
      pthread_kill(entry.thread, kSignal);
      entry.since = Clock::now();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;
};

}  // namespace

Watch::Watch(const std::atomic<uint64_t>& progress, double deadline_seconds, void (*overdue)()) {
  overdue_here = overdue;
  const std::chrono::duration<double> deadline(deadline_seconds);
  Watchdog::get().add({.owner = this,
                       .thread = pthread_self(),
                       .progress = &progress,
                       .deadline = std::chrono::duration_cast<Clock::duration>(deadline),
                       .seen = progress,
                       .since = Clock::now()});
}

Watch::~Watch() { Watchdog::get().remove(this); }

}  // namespace hearth::emu
