#pragma once

#include <functional>
#include <optional>
#include <string>

#include "loggers/logger.h"
#include "loggers/run_reader.h"

namespace hearth::loggers {

/// Message of the process that runs a training to a follower: a worker failed, or the run ended.
struct Notice {
  bool is_end = false;
  End end;  ///< for the failure of a worker only the text
};

/// Options of follow().
struct FollowOptions {
  std::string logger;  ///< name of the logger in messages, and of its file in kLoggerFolder
  fs::path run;
  std::string project, name;  ///< log.project and log.name; may be empty
  FileId outdated_log = {};   ///< log of an earlier run in the same folder, which is not read
  /// Waits for the next notice. Returns nullopt after the timeout.
  std::function<std::optional<Notice>(double timeout_seconds)> wait;
  std::function<void(const std::string&)> say = [](const std::string&) {};
  double poll_seconds = 0.5;          ///< time between two reads of the log
  double first_retry_seconds = 1;     ///< time until the first retry after a failure; doubles up to 60
  double end_seconds = 60;            ///< max time to send the rest after the end of the run
  double end_seconds_if_failing = 3;  ///< end_seconds of a logger whose last call failed
};

/// Folder in the run folder with a file LOGGER.json for each logger: the id of the run in the logger, and the
/// last steps that were sent.
inline constexpr const char* kLoggerFolder = "loggers";

/// Sends the reports of a run to a logger until the run has ended. A failed call is repeated with growing
/// intervals; meanwhile the reports stay in the log of the run. Says the first failure, the first recovery,
/// and at the end if reports were not sent.
void follow(Logger& logger, const FollowOptions& options);

}  // namespace hearth::loggers
