#pragma once

#include <sys/types.h>
#include <csignal>

#include <chrono>
#include <optional>
#include <string>

#include "base/function_ref.h"

namespace hearth::supervise {

/// A forked process. It is killed when this process ends for any reason, and when this object is destroyed.
class Worker {
 public:
  /// Forks. The child runs `work` and exits with its result; it ignores SIGINT, SIGTERM and SIGHUP. This
  /// process must have one thread. Throws a UserError if the fork fails.
  explicit Worker(FunctionRef<int()> work);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  pid_t process() const { return process_; }
  /// Updates the state by waitpid, without waiting.
  void look();
  /// True if the process was running at the last look().
  bool running() const { return !ended_; }
  using Clock = std::chrono::steady_clock;
  /// Returns the time at which the process was stopped (SIGSTOP); nullopt if it is not stopped.
  std::optional<Clock::time_point> stopped() const { return stopped_; }
  /// Exit status of a process that has exited; -1 if it is running or was killed by a signal.
  int exit_status() const;
  /// Describes how a process ended or stopped, for example "was killed by SIGSEGV".
  std::string describe_exit() const;
  /// True if SIGKILL ended the process.
  bool was_killed() const;
  /// Sends SIGKILL.
  void kill_now() const;

 private:
  pid_t process_;
  bool ended_ = false;
  std::optional<Clock::time_point> stopped_;
  int status_ = 0;  ///< status word of waitpid
};

/// Blocks SIGINT, SIGTERM, SIGCHLD and, unless it is ignored, SIGHUP while this object lives. Forked workers
/// do not get them.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  /// Returns the next of these signals, or 0 if none arrives within `patience`.
  int next(std::chrono::milliseconds timeout) const;

 private:
  sigset_t held_, before_;
};

}  // namespace hearth::supervise
