#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/run_files.h"

/// Loggers send the reports of a run (metrics and generated images) to MLflow, Weights & Biases, trackio or a
/// webhook. Each runs in a child process (processes.h), which follows the JSON log of the run (follower.h).
namespace hearth::loggers {

/// Description of a run for loggers.
struct RunInfo {
  fs::path folder;
  std::string project;  ///< log.project; empty: the logger's default
  std::string name;
  /// Keys of the recipe and their values as YAML text, without secrets; empty if the run failed before it had
  /// a log.
  std::vector<std::pair<std::string, std::string>> config;
  std::string recipe;  ///< text of config.yaml without secrets
  /// Id that the logger returned for this run in an earlier session; empty: none.
  std::string id;
};

/// Metrics of an update or an evaluation, with their names in TensorBoard.
struct Row {
  int64_t step = 0;
  double time = 0;  ///< seconds since 1970
  std::vector<std::pair<std::string, double>> metrics;
  bool is_evaluation = false;
  bool is_best = false;  ///< true for an evaluation with a better score than all earlier ones
};

/// Generated image of an evaluation.
struct Image {
  int64_t step = 0;
  std::string name;
  fs::path file;  ///< PNG file in the run folder
};

/// Reports in the order of the log. All images belong to evaluations in `rows`.
struct Batch {
  std::vector<Row> rows;
  std::vector<Image> images;
};

/// State of a run when it ends.
enum class EndState : uint8_t { done, interrupted, crashed };
/// Result of a run.
struct RunEnd {
  EndState state = EndState::crashed;
  std::string text;  ///< reason of a crash, one sentence
};

/// Files of the run folder that loggers receive after the end of the run.
inline constexpr const char* kFinalFiles[] = {"report.html", kLogFile};

/// Connection to a logger. Calls block until the logger has answered, a timeout has passed or is_cancelled()
/// returns true. They throw an exception, usually a UserError, if the logger did not accept the data. The
/// caller then calls open() again and repeats the call.
class Logger {
 public:
  virtual ~Logger() = default;
  /// Starts the run in the logger, or continues the run RunInfo::id, and returns its id. If the returned id
  /// differs, all reports of the run are sent again.
  virtual std::string open(const RunInfo& run) = 0;
  /// Sends reports, in the order of the log.
  virtual void send(const Batch& batch) = 0;
  /// True if send_failure() must be called, even for a run that fails before it has a log.
  virtual bool wants_failures() const { return false; }
  /// Reports that a worker failed. The supervisor may restart it.
  virtual void send_failure(const std::string& /*text*/) {}
  /// Reports the end of the run, and sends kFinalFiles if the logger stores files.
  virtual void finish(const RunEnd& end) = 0;

  /// Called about once per second during a call. Returns true to end the call with an exception.
  std::function<bool()> is_cancelled = [] { return false; };
};

}  // namespace hearth::loggers
