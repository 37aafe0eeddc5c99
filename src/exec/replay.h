#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/waits.h"

namespace hearth::exec {

/// Of every byte that a step moves, what it moves through a path that others may use at the same time.
struct PathUse {
  size_t path = 0;
  double per_byte = 1;
};

/// A step of a worker's program as a replay runs it: `seconds`, then `num_bytes` as fast as its paths let it.
struct ReplayStep {
  Queue queue = Queue::compute;
  double seconds = 0;
  double num_bytes = 0;
  std::vector<PathUse> paths = {};
  /// Earlier steps of the same program, of other queues (exec/waits.h).
  std::vector<size_t> waits = {};
  /// Steps of several workers with one number, not negative, begin and end together: a collective, or a send
  /// and its receive. Each worker has at most one of a number.
  int64_t meeting = -1;
};

struct ReplaySpan {
  double begin = 0, end = 0;  ///< seconds since the start
};

struct Replay {
  double seconds = 0;                          ///< until every step is done
  std::vector<std::vector<ReplaySpan>> spans;  ///< of every step of every worker
  /// Of each worker, how long each queue had something to do.
  std::vector<std::array<double, kNumQueues>> busy_seconds;

  /// How long a worker's Queue::compute stood still.
  double exposed_seconds(size_t worker) const {
    return seconds - busy_seconds[worker][static_cast<size_t>(Queue::compute)];
  }
};

/// Runs the programs of all workers at once, each queue in order, over paths of that many bytes per second.
/// Bytes on their way share paths evenly, as far as they can use them (max-min fairness: Bertsekas, Gallager,
/// Data Networks, 6.5.2). Nothing is measured. Programs whose steps wait for each other in a circle are a
/// broken invariant.
Replay replay(std::span<const std::vector<ReplayStep>> workers, std::span<const double> bytes_per_second);

}  // namespace hearth::exec
