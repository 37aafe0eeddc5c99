#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "loggers/logger.h"
#include "recipe/recipe.h"

namespace hearth::loggers {

/// Child processes that send the reports of a run to its loggers. Each logger has a process, so that a logger
/// that does not answer delays neither training nor the other loggers. The processes follow the log, even
/// while workers are restarted. If this process ends without finish(), they report a crash and exit.
class LoggerProcesses {
 public:
  /// Starts the processes of log.to and log.webhook. The calling process must have a single thread, because
  /// it forks. `resume`: false if the run is new; files of an earlier run in the folder are then removed or
  /// not read. `say`: prints a message; called in the child processes. Throws a UserError if a logger is not
  /// configured.
  LoggerProcesses(const recipe::Log& log, const fs::path& run, bool resume,
                  const std::function<void(const std::string&)>& say);
  /// Reports a crash, unless finish() was called.
  ~LoggerProcesses();
  LoggerProcesses(const LoggerProcesses&) = delete;
  LoggerProcesses& operator=(const LoggerProcesses&) = delete;

  /// Reports that a worker failed. Never blocks.
  void report_failure(const std::string& text) const;
  /// Reports the end of the run and waits until all processes have exited. Kills those that run longer than
  /// kMaxWaitSeconds.
  void finish(const RunEnd& end);

  static constexpr double kMaxWaitSeconds = 70;

 private:
  struct Child {
    pid_t process;
    int socket;
  };
  using Open = std::function<std::unique_ptr<Logger>()>;
  void start(const std::string& name, const Open& open);

  fs::path run_;
  std::string project_, name_;
  bool resume_;
  std::function<void(const std::string&)> say_;
  std::vector<Child> children_;
};

}  // namespace hearth::loggers
