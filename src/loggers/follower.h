#pragma once

#include <functional>
#include <optional>
#include <string>

#include "loggers/logger.h"
#include "loggers/run_reader.h"

namespace hearth::loggers {

/// Message from the process that runs the training to a logger process: a worker failed, or the run ended.
struct Notice {
  bool is_end = false;  ///< false: a worker failed
  RunEnd end;           ///< if a worker failed, only end.text is used
};

/// Options of follow().
struct FollowOptions {
  std::string logger;  ///< name of the logger in messages, and of its file in kLoggerFolder
  fs::path run;
  std::string project, name;  ///< log.project and log.name; may be empty
  FileId outdated_log = {};   ///< log that an earlier run left in the folder; it is not read
  /// Waits for the next notice. Returns nullopt after the timeout.
  std::function<std::optional<Notice>(double timeout_seconds)> wait;
  /// Prints a message for the user.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  double poll_seconds = 0.5;          ///< time between two reads of the log
  double first_retry_seconds = 1;     ///< time before the first retry; doubles with each failure, up to 60
  double end_seconds = 60;            ///< timeout for sending the remaining reports after the end of the run
  double end_seconds_if_failing = 3;  ///< used instead of end_seconds if the last call failed
};

/// Folder in the run folder. It has a file LOGGER.json for each logger, with the id of the run in the logger
/// and the last steps that were sent.
inline constexpr const char* kLoggerFolder = "loggers";

/// Sends the reports of a run to a logger until the run has ended. Repeats a failed call after growing
/// intervals; meanwhile the reports stay in the log of the run. Prints the first failure, the first recovery,
/// and at the end a message if reports were not sent.
void follow(Logger& logger, const FollowOptions& options);

}  // namespace hearth::loggers
