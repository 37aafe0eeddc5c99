#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "loggers/logger.h"
#include "recipe/recipe.h"

namespace hearth::loggers {

/// Child processes that send the reports of a run to its loggers: one per logger, so that one that does not
/// answer delays neither training nor the others. They follow the log, also while workers are restarted, and
/// end by themselves after the end of this process, which they report as a crash.
class LoggerProcesses {
 public:
  /// Starts the processes of log.to and log.webhook. The calling process must have one thread. `resume`:
  /// false if the run is new, so that files of an earlier run in the folder are not read. `say`: prints a
  /// message; is called in the child processes. UserError if a logger is not configured.
  LoggerProcesses(const recipe::Log& log, const fs::path& run, bool resume,
                  const std::function<void(const std::string&)>& say);
  /// Reports a crash, unless finish() was called.
  ~LoggerProcesses();
  LoggerProcesses(const LoggerProcesses&) = delete;
  LoggerProcesses& operator=(const LoggerProcesses&) = delete;

  /// Reports that a worker failed. Never blocks.
  void report_failure(const std::string& text) const;
  /// Reports the end of the run and waits until all loggers have it, at most kMaxWaitSeconds.
  void finish(const End& end);

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
