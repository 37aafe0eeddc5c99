#pragma once

#include <optional>

#include "run/trainer_events.h"

namespace hearth::run {

/// Keeps GPUs within their temperature and power limits: sleeps after each step, and pauses the run if
/// sleeping is not sufficient. The supervisor process reads the sensors and decides how much to sleep.
/// Without a supervisor, the pacer never sleeps. In the first seconds GPUs with sensors idle for a decreasing
/// fraction of the time, because a weak power supply may turn off when the load rises at once.
class Pacer {
 public:
  /// `events` must outlive the pacer.
  explicit Pacer(const TrainerEvents& events) : events_(events) {}

  /// Returns the latest sensor readings; nullopt if no sensor has been read yet.
  std::optional<supervise::GpuState> readings() const;
  /// Returns the seconds to sleep after a step that took `step_seconds`, and reports the total time per step
  /// to the supervisor. The leader calls it for all workers.
  double rest_seconds(double step_seconds) const;
  /// Returns the min idle fraction `seconds` after the first step; it decreases, so the load rises slowly.
  static double ramp_share(double seconds);
  /// Sleeps while sending heartbeats; returns early if a stop is requested.
  void rest(double seconds) const;
  /// True if the GPUs are so hot that the run has to pause.
  bool is_paused() const { return events_.gpus != nullptr && events_.gpus->paused(); }
  /// Sleeps until the GPUs are cool or a stop is requested; returns the seconds slept.
  double wait_while_paused() const;

 private:
  bool is_stopped() const { return events_.stop != nullptr && *events_.stop; }

  const TrainerEvents& events_;
  mutable double started_ = -1;  ///< process_seconds() at the end of the first step; -1: before it
};

}  // namespace hearth::run
