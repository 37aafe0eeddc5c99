#pragma once

#include <atomic>
#include <string>

#include "distributed/heartbeat.h"
#include "distributed/shm/shm.h"
#include "supervise/gpu_board.h"

namespace hearth::supervise {

/// Values that the supervisor passes to a worker.
struct WorkerContext {
  int rank = 0;
  int size = 1;
  int device = 0;  ///< index of the worker's device in the run's original list of devices
  /// Number of the attempt, from 1. Above 1, earlier workers have failed, and may have saved checkpoints.
  int attempt = 1;
  /// True if training has failed twice at the same step: the samples are to be used in another order.
  bool new_order = false;
  std::string reason;  ///< how the previous attempt failed; empty for the first attempt
  distributed::Heartbeat heartbeat;
  /// Set by the supervisor to request the worker to finish the step, save, and exit with kInterrupted.
  const std::atomic<bool>* stop = nullptr;
  /// Shared by the workers: set by the first one that prints an error which all have, so that it is printed
  /// once.
  std::atomic<bool>* said = nullptr;
  /// Memory of the workers' process group; null if there is one worker.
  distributed::ShmGroup* group = nullptr;
  const GpuBoard* gpus = nullptr;  ///< sensor readings of the GPUs; null if they are not read
};

/// Exit statuses of workers that end the run: success, a user error (which the worker has reported), and
/// interrupted. Any other status is a failure.
inline constexpr int kDone = 0, kMistake = 2, kInterrupted = 130;

}  // namespace hearth::supervise
