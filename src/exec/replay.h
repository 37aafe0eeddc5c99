#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/waits.h"

namespace hearth::exec {

/// Load that a step puts on a shared path: bytes through the path per byte that the step moves.
struct PathUse {
  size_t path = 0;
  double per_byte = 1;
};

/// A step of a worker's program in the simulation: `seconds` of work, then `num_bytes` at the rate its paths
/// allow.
struct SimulatedStep {
  Queue queue = Queue::compute;
  double seconds = 0;
  double num_bytes = 0;
  std::vector<PathUse> paths = {};
  /// Indices of earlier steps of the same program in other queues (exec/waits.h).
  std::vector<size_t> waits = {};
  /// Steps of several workers with the same non-negative number begin and end together: a collective, or a
  /// send and its receive. Each worker has at most one step per number.
  int64_t meeting = -1;
};

/// Interval in which a step runs.
struct SimulatedSpan {
  double begin = 0, end = 0;  ///< seconds since the start
};

/// Result of a simulation.
struct Replay {
  double seconds = 0;                             ///< time at which all steps are done
  std::vector<std::vector<SimulatedSpan>> spans;  ///< begin and end of every step of every worker
  /// Busy seconds of each queue of each worker.
  std::vector<std::array<double, kNumQueues>> busy_seconds;

  /// Returns the idle seconds of a worker's compute queue.
  double exposed_seconds(size_t worker) const {
    return seconds - busy_seconds[worker][static_cast<size_t>(Queue::compute)];
  }
};

/// Simulates the programs of all workers, each queue in order, over shared paths with these rates. Concurrent
/// transfers share paths by max-min fairness (Bertsekas, Gallager, Data Networks, 6.5.2). Steps that wait for
/// each other in a cycle are an internal error.
Replay replay(std::span<const std::vector<SimulatedStep>> workers, std::span<const double> bytes_per_second);

}  // namespace hearth::exec
