#pragma once

#include <atomic>
#include <string>

#include "distributed/heartbeat.h"
#include "distributed/shm/shm.h"
#include "supervise/gpu_board.h"

namespace hearth::supervise {

/// Context of a worker.
struct WorkerContext {
  int rank = 0;
  int size = 1;
  int device = 0;   ///< index in the run's initial list of devices
  int attempt = 1;  ///< number from 1; above 1: earlier workers have failed and left checkpoints
  /// True if training has failed twice at the same step: continue with the samples in another order.
  bool new_order = false;
  std::string reason;  ///< how the previous attempt failed; empty for the first attempt
  distributed::Heartbeat heartbeat;
  const std::atomic<bool>* stop =
      nullptr;  ///< set by the supervisor: finish the step, save, and exit with kInterrupted
  std::atomic<bool>* said = nullptr;  ///< shared by the workers, so that only one of them prints a message
  distributed::ShmGroup* group =
      nullptr;                     ///< process group memory of the workers; null if there is one worker
  const GpuBoard* gpus = nullptr;  ///< readings of GPU sensors; null if they are not watched
};

/// Exit statuses of workers: kDone, kMistake (a user error, which was reported) and kInterrupted end the run;
/// any other status is a failure.
inline constexpr int kDone = 0, kMistake = 2, kInterrupted = 130;

}  // namespace hearth::supervise
