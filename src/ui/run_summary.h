#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ui/log_reader.h"

namespace hearth::ui {

enum class RunState : uint8_t {
  running,
  done,     ///< the last step is logged
  stopped,  ///< ended before the last step and wrote report.html; can be resumed
  crashed,  ///< its process ended without writing report.html; can be resumed if there is a checkpoint
};
const char* name_of(RunState state);

/// Best evaluation of a run so far.
struct BestScore {
  std::string name;  ///< a metric for which higher is better, such as "eval_accuracy", or "eval_loss"
  double value = 0;
  int64_t step = -1;  ///< -1: no evaluation yet
  /// Updates the score with a line of the log.
  void take(std::string_view line);
};

/// Summary of a run, read from its files.
struct RunSummary {
  std::string name;  ///< path of the run folder, relative to the folder of runs
  RunState state = RunState::crashed;
  std::string owner;  ///< process that trains, such as "process 12 on host"; empty if none
  int64_t step = 0, total_steps = 0;
  double elapsed_seconds = 0, seconds_per_step = 0;  ///< 0: unknown
  double logged_at = 0;                              ///< Unix time of the last log line; 0: no log
  std::vector<double> losses;                        ///< at most 64 recent training losses, oldest first
  std::string evaluation, event;                     ///< last evaluation and last event as text
  BestScore best;
  std::string model;             ///< name of the model in config.yaml
  int64_t checkpoint_step = -1;  ///< step of the newest checkpoint; -1: none
  bool has_report = false;       ///< true if report.html exists

  /// Returns the summary as a JSON object.
  std::string json() const;
};

/// Reader of a run folder. Each refresh() reads only what has changed since the previous one.
class RunReader {
 public:
  RunReader(fs::path folder, std::string name);
  const fs::path& folder() const { return folder_; }
  /// Reads the files. Damaged and missing files are treated as empty.
  void refresh();
  const RunSummary& summary() const { return summary_; }

 private:
  void read_log();
  RunState find_state();

  fs::path folder_;
  RunSummary summary_;
  LogReader evaluations_;
  /// Modification times of the log and of config.yaml when they were read.
  fs::file_time_type logged_, configured_;
};

/// Returns at most 5,000 run folders up to two levels below `root`, sorted by path; only `root` if it is a
/// run folder. Run folders have a log or a config.yaml.
std::vector<fs::path> find_runs(const fs::path& root);

}  // namespace hearth::ui
