#pragma once

#include <string>
#include <vector>

#include "base/file.h"

namespace hearth::io {

/// How far a run is, by the end of its trainer_log.jsonl.
struct LogTail {
  int64_t step = 0, total_steps = 0;
  double elapsed_seconds = 0;
  double seconds_per_step = 0;  ///< of the last steps that are read; 0: not known
  double age_seconds = 0;       ///< since the last line was written
  std::vector<double> losses;   ///< the last ones, in their order
  std::string evaluation;       ///< of the last one: "eval_loss 0.41  eval_accuracy 0.88"; empty: none
  std::string event;            ///< the last one; empty: none
};

/// Seconds since a log was written to; 0: there is none.
double log_age_seconds(const fs::path& log);

/// Reads at most the last 64 KiB of a log; one that is not there, or has no whole line yet, is all zeros.
LogTail read_log_tail(const fs::path& log);

}  // namespace hearth::io
