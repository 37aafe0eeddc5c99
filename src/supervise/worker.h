#pragma once

#include <sys/types.h>
#include <csignal>

#include <chrono>
#include <optional>
#include <string>

#include "base/function_ref.h"

namespace hearth::supervise {

/// A forked process. It is killed when this object is destroyed, and when this process ends for any reason.
class Worker {
 public:
  /// Forks the process, which runs `work` and exits with its result, and ignores SIGINT, SIGTERM and SIGHUP.
  /// This process must have one thread. Throws a UserError if it cannot fork.
  explicit Worker(FunctionRef<int()> work);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  pid_t process() const { return process_; }
  /// Updates the state of the process without waiting (waitpid).
  void look();
  /// True if the process was running at the last look().
  bool running() const { return !ended_; }
  using Clock = std::chrono::steady_clock;
  /// Returns the time at which the process was stopped (SIGSTOP); nullopt if it is not stopped now.
  std::optional<Clock::time_point> stopped() const { return stopped_; }
  /// Returns the exit status if the process has exited; -1 if it is running or was killed by a signal.
  int exit_status() const;
  /// Describes how the process ended or stopped, for example "was killed by SIGSEGV".
  std::string describe_exit() const;
  /// True if SIGKILL ended the process.
  bool was_killed() const;
  /// Sends SIGKILL.
  void kill_now() const;

 private:
  pid_t process_;
  bool ended_ = false;
  std::optional<Clock::time_point> stopped_;
  int status_ = 0;  ///< status that waitpid returned last
};

/// Blocks SIGINT, SIGTERM, SIGCHLD and, unless it is ignored, SIGHUP while this object exists, so that next()
/// can wait for them. Forked workers do not receive these signals.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  /// Returns the next of these signals; 0 if none arrives within `timeout`.
  int next(std::chrono::milliseconds timeout) const;

 private:
  sigset_t held_, before_;
};

}  // namespace hearth::supervise
