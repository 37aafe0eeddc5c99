#include "backend/gpu/emu/watchdog.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <mutex>
#include <thread>
#include <vector>

namespace hearth::emu {
namespace {

/// Signal that interrupts an overdue thread. Its default action is to be ignored.
constexpr int kSignal = SIGURG;
constexpr auto kPeriod = std::chrono::milliseconds(20);

thread_local void (*overdue_here)() = nullptr;

struct Entry {
  const void* owner;
  pthread_t thread;
  clockid_t clock;  ///< clock of the thread's CPU time
  const std::atomic<uint64_t>* progress;
  double deadline_seconds;
  uint64_t seen = 0;
  double since = 0;
};

double seconds_of(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Checks the progress of every Watch of the process periodically, in a separate thread that runs until the
/// process ends.
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
    const double seconds = seconds_of(entry.clock);
    if (now != entry.seen) {
      entry.seen = now;
      entry.since = seconds;
    } else if (seconds - entry.since > entry.deadline_seconds) {
      pthread_kill(entry.thread, kSignal);
      entry.since = seconds;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;
};

}  // namespace

Watch::Watch(const std::atomic<uint64_t>& progress, double deadline_seconds, void (*overdue)()) {
  overdue_here = overdue;
  Entry entry{.owner = this,
              .thread = pthread_self(),
              .clock = {},
              .progress = &progress,
              .deadline_seconds = deadline_seconds,
              .seen = progress};
  pthread_getcpuclockid(entry.thread, &entry.clock);
  entry.since = seconds_of(entry.clock);
  Watchdog::get().add(entry);
}

Watch::~Watch() { Watchdog::get().remove(this); }

}  // namespace hearth::emu
