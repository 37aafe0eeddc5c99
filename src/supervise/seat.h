#pragma once

#include <atomic>
#include <string>

#include "distributed/heartbeat.h"
#include "distributed/shm/shm.h"
#include "supervise/gpu_board.h"

namespace hearth::supervise {

/// What a worker is given.
struct Seat {
  int rank = 0;
  int size = 1;
  int device = 0;   ///< of those that the run began with
  int attempt = 1;  ///< above 1: workers before it have failed, and left their work where it was
  /// Training has failed twice at the same step: take the samples in another order from where it continues.
  bool new_order = false;
  std::string reason;  ///< of this attempt: how the one before it failed
  distributed::Heartbeat heartbeat;
  const std::atomic<bool>* stop = nullptr;  ///< set: end soon with kInterrupted, and leave nothing undone
  std::atomic<bool>* said = nullptr;        ///< the group's, for its workers to agree on who says something
  distributed::ShmGroup* group = nullptr;   ///< of the attempt's workers; null where there is one alone
  const GpuBoard* gpus = nullptr;           ///< null where nobody watches them
};

/// Exit statuses of workers. With kDone, kMistake (of the user, who was told) and kInterrupted a worker has
/// said its last word; with any other it has failed.
inline constexpr int kDone = 0, kMistake = 2, kInterrupted = 130;

}  // namespace hearth::supervise
