#pragma once

#include <optional>

#include "run/trainer_events.h"

namespace hearth::run {

/// Keeps GPUs cool: rests between steps, and pauses where such gaps are not enough. The supervisor reads the
/// sensors and decides the share of idle time; without a supervisor there is never a rest.
class Pacer {
 public:
  /// `events` outlives the pacer.
  explicit Pacer(const TrainerEvents& events) : events_(events) {}

  /// Returns the latest sensor readings; none if no sensor was read yet.
  std::optional<supervise::GpuState> readings() const;
  /// Returns the seconds to rest after a step, and reports the period between two steps to the supervisor.
  /// The leader decides for all workers.
  double rest_seconds(double step_seconds) const;
  /// Sleeps, sending heartbeats; returns early once the run is asked to stop.
  void rest(double seconds) const;
  /// True if the GPUs are too hot for gaps between steps.
  bool is_paused() const { return events_.gpus != nullptr && events_.gpus->paused(); }
  /// Rests until the GPUs are cool again or the run is asked to stop; returns the seconds that took.
  double wait_while_paused() const;

 private:
  bool is_stopped() const { return events_.stop != nullptr && *events_.stop; }

  const TrainerEvents& events_;
};

}  // namespace hearth::run
