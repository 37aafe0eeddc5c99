#pragma once

#include <string>

#include "engine/engine.h"
#include "run/run_sink.h"

namespace hearth::run {

/// Measures the throughput of a session (one process of a run that may be resumed) and estimates the
/// remaining time of the run.
class ProgressMeter {
 public:
  /// Sets the start time of the session.
  void start();
  /// Reads the training time and the step time of earlier sessions from the log of the run.
  void read_earlier_sessions(const fs::path& log);
  void count_step(int64_t num_samples);
  /// Adds the duration of an evaluation, which the throughput excludes.
  void count_evaluation(double seconds) { evaluation_seconds_ += seconds; }

  int64_t session_steps() const { return session_steps_; }
  double session_seconds() const;
  /// Returns the total seconds of this session and all earlier ones.
  double run_seconds() const { return earlier_seconds_ + session_seconds(); }
  /// Returns the progress after a step; Progress::gpus is empty. `unit`: name of a sample, such as "img".
  Progress progress_after(const StepReport& step, const engine::Engine& engine, const char* unit,
                          int num_workers) const;

 private:
  double started_seconds_ = 0;  ///< start of the session, as process_seconds()
  int64_t session_steps_ = 0;
  int64_t session_samples_ = 0;
  double evaluation_seconds_ = 0;
  double earlier_seconds_ = 0;
  double earlier_seconds_per_step_ = 0;  ///< step time at the end of the previous session; 0: unknown
};

}  // namespace hearth::run
