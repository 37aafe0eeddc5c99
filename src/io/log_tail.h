#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/file.h"

namespace hearth::io {

/// Progress of a run, read from the end of its trainer_log.jsonl.
struct LogTail {
  int64_t step = 0, total_steps = 0;
  double elapsed_seconds = 0;
  double seconds_per_step = 0;  ///< mean over the steps in the read part of the log; 0: unknown
  double age_seconds = 0;       ///< seconds since the last line was written
  std::vector<double> losses;   ///< training losses in the read part of the log, oldest first
  std::string evaluation;       ///< last evaluation: "eval_loss 0.41  eval_accuracy 0.88"; empty: none
  std::vector<std::pair<std::string, double>> metrics;  ///< of the last evaluation: {"eval_loss", 0.41}
  std::string event;                                    ///< last event; empty: none
};

/// Returns the seconds since a log was last written to; 0 if there is none.
double log_age_seconds(const fs::path& log);

/// Reads the last 64 KiB of a log (or less). Returns a LogTail of zeros if the file is missing or has no
/// complete line.
LogTail read_log_tail(const fs::path& log);

}  // namespace hearth::io
