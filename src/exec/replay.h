#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/waits.h"

namespace hearth::exec {

/// Use of a shared path by a step: number of bytes that pass through the path per byte that the step moves.
struct PathUse {
  size_t path = 0;
  double per_byte = 1;
};

/// A step of a worker's program in the simulation: takes `seconds`, and then moves `num_bytes` at the rate
/// that its paths allow.
struct SimulatedStep {
  Queue queue = Queue::compute;
  double seconds = 0;
  double num_bytes = 0;
  std::vector<PathUse> paths = {};
  /// Indices of the earlier steps in other queues of the same program that must end first (exec/waits.h).
  std::vector<size_t> waits = {};
  /// Number of a meeting (a collective, or a send and its receive): steps of several workers with the same
  /// number begin and end together. -1: none. Each worker has at most one step per number.
  int64_t meeting = -1;
};

/// Time interval in which a step ran.
struct SimulatedSpan {
  double begin = 0, end = 0;  ///< seconds since the start of the simulation
};

/// Result of a simulation.
struct Replay {
  double seconds = 0;                             ///< time at which all steps are done
  std::vector<std::vector<SimulatedSpan>> spans;  ///< for each worker, the interval of each step
  /// For each worker, the seconds in which each queue was busy.
  std::vector<std::array<double, kNumQueues>> busy_seconds;

  /// Returns the idle seconds of a worker's compute queue.
  double exposed_seconds(size_t worker) const {
    return seconds - busy_seconds[worker][static_cast<size_t>(Queue::compute)];
  }
};

/// Simulates the programs of all workers. Each queue runs its steps in order. Concurrent transfers share the
/// paths, which have the given rates, by max-min fairness (Bertsekas, Gallager, Data Networks, 6.5.2). Throws
/// InternalError if steps wait for each other in a cycle.
Replay replay(std::span<const std::vector<SimulatedStep>> workers, std::span<const double> bytes_per_second);

}  // namespace hearth::exec
