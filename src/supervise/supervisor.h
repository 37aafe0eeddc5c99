#pragma once

#include <functional>
#include <string>

#include "distributed/heartbeat.h"
#include "distributed/shm.h"

namespace hearth::supervise {

/// What a worker is given.
struct Seat {
  int rank = 0;
  int size = 1;
  int device = 0;   ///< of those that the run began with
  int attempt = 1;  ///< above 1: workers before it have failed, and left their work where it was
  /// Training has failed twice at the same step: take the samples in another order from where it goes on.
  bool new_order = false;
  std::string reason;  ///< of this attempt: how the one before it failed
  distributed::Heartbeat heartbeat;
  const std::atomic<bool>* stop = nullptr;  ///< set: end soon with kInterrupted, and leave nothing undone
  std::atomic<bool>* said = nullptr;        ///< the group's, for its workers to agree on who says something
  distributed::ShmGroup* group = nullptr;   ///< of the attempt's workers; null where there is one alone
};

/// Exit statuses of workers. With kDone, kMistake (of the user, who was told) and kInterrupted a worker has
/// said its last word; with any other it has failed.
inline constexpr int kDone = 0, kMistake = 2, kInterrupted = 130;
/// In place of a worker's: too many have failed.
inline constexpr int kGaveUp = 75;

struct SupervisorOptions {
  int size = 1;
  /// A worker whose next beat takes so long is stuck: in phases without a rhythm, and before theirs is known.
  /// What it reports may wait for a reader as long as that likes.
  double start_seconds = 600;
  /// Training and evaluating have one: 20 of the longest times between beats are allowed, and these at least.
  double least_seconds = 10;
  /// A worker that is stopped (SIGSTOP) for so long is stuck.
  double stopped_seconds = 1;
  int most_failures = 1000;  ///< in all
  double probe_seconds = 120;
  /// The supervisor ends what is stuck long before a collective would give up.
  distributed::ShmOptions group = {.deadline_seconds = 86400};
  /// Takes sentences for people: which worker failed and how.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  /// Tried for each device behind a failure, in processes of their own. One that is false, or dies, or gives
  /// no answer within probe_seconds leaves its device out from then on.
  std::function<bool(int device)> probe;
  /// How many workers go on where so many devices are left; 0: none can.
  std::function<int(int num_devices)> num_workers = [](int num_devices) { return num_devices; };
};

/// Has forked workers do `work`, and all of them once more when one fails: dies, ends with an unknown status,
/// is stopped, or does not beat in time while no other one does. Returns the status of rank 0, or one that is
/// kMistake; kInterrupted behind SIGINT or SIGTERM, of which the first sets Seat::stop and the second ends
/// the workers, or behind SIGHUP that is not ignored, which is never the second: shells and kernels both send
/// it; kGaveUp after three failures at one step, four without a later step between, most_failures, or where
/// too few devices are left. This process has one thread and has opened no device.
int supervise(const std::function<int(const Seat&)>& work, const SupervisorOptions& options);

}  // namespace hearth::supervise
