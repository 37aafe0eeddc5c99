#pragma once

#include <sys/types.h>
#include <csignal>

#include <chrono>
#include <optional>
#include <string>

#include "base/function_ref.h"

namespace hearth::supervise {

/// A forked process. It ends when this one does, however that ends, and with this object at the latest.
class Worker {
 public:
  /// Forks: the child does `work`, without this process's signal handlers, and its result is the exit status.
  /// SIGINT, SIGTERM and SIGHUP do nothing to it. This process has one thread. InternalError where it cannot
  /// fork.
  explicit Worker(FunctionRef<int()> work);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  pid_t process() const { return process_; }
  /// Finds out what has become of it.
  void look();
  /// As of the last look().
  bool running() const { return !ended_; }
  /// Since when it is stopped, by SIGSTOP or the like; nothing where it is not.
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> stopped() const { return stopped_; }
  /// Of one that has ended by itself; -1 after a signal.
  int exit_status() const;
  /// What has happened to one that has ended or is stopped: "was killed by SIGSEGV".
  std::string fate() const;
  /// True if SIGKILL ended the process.
  bool was_killed() const;
  void kill_now() const;

 private:
  pid_t process_;
  bool ended_ = false;
  std::optional<Clock::time_point> stopped_;
  int status_ = 0;  ///< of waitpid
};

/// SIGINT, SIGTERM, SIGCHLD and, unless it is ignored, SIGHUP, held back while this object lives; workers
/// that are forked get none of them.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  /// The first of them that came, or comes within this time; else 0.
  int next(std::chrono::milliseconds patience) const;

 private:
  sigset_t held_, before_;
};

}  // namespace hearth::supervise
