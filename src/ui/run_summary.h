#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ui/log_reader.h"

namespace hearth::ui {

enum class RunState : uint8_t {
  running,
  done,     ///< the last step is logged
  stopped,  ///< ended in order before the last step; can be resumed
  crashed,  ///< its process is gone without an orderly end; can be resumed if it has a checkpoint
};
const char* name_of(RunState state);

/// Best evaluation of a run so far.
struct BestScore {
  std::string name;  ///< "eval_accuracy", or "eval_loss" if no metric is known to be better when it is higher
  double value = 0;
  int64_t step = -1;  ///< -1: no evaluation yet
  /// Updates the score with a line of the log.
  void take(std::string_view line);
};

/// State of a run, as its files show it.
struct RunSummary {
  std::string name;  ///< path of the run folder below the folder of runs
  RunState state = RunState::crashed;
  std::string owner;  ///< process that trains, "process 12 on host"; empty unless it runs
  int64_t step = 0, total_steps = 0;
  double elapsed_seconds = 0, seconds_per_step = 0;  ///< 0: unknown
  double logged_at = 0;                              ///< Unix time of the last log line; 0: no log
  std::vector<double> losses;                        ///< at most 64 recent training losses, oldest first
  std::string evaluation, event;                     ///< last evaluation and event as text
  BestScore best;
  std::string model;             ///< name of the model in config.yaml
  int64_t checkpoint_step = -1;  ///< step of the newest checkpoint; -1: none
  bool has_report = false;       ///< true if report.html exists

  /// Returns the summary as a JSON object.
  std::string json() const;
};

/// Reader of a run folder that is called repeatedly. Reads only what has changed since the last call.
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
  fs::file_time_type logged_, configured_;  ///< times of the log and config.yaml when they were read
};

/// Returns the run folders below `root`, up to two levels deep: folders with a log or a config.yaml. Returns
/// `root` itself if it is a run. At most 5,000, sorted by path.
std::vector<fs::path> find_runs(const fs::path& root);

}  // namespace hearth::ui
