#pragma once

#include <functional>
#include <string>

#include "base/control_group.h"
#include "distributed/shm/options.h"
#include "supervise/governor.h"
#include "system/sampler.h"

namespace hearth::supervise {

struct SupervisorOptions {
  int size = 1;
  /// A worker whose next beat takes so long is stuck: in phases without a rhythm, and before theirs is known
  /// unless it asks for more (Heartbeat::allow).
  /// What it reports may wait for a reader as long as that likes.
  double start_seconds = 600;
  /// Training and evaluating have one: 20 of the longest times between beats are allowed, and these at least.
  double least_seconds = 10;
  /// A worker that is stopped (SIGSTOP) for so long is stuck.
  double stopped_seconds = 1;
  int most_failures = 1000;  ///< in all
  /// Counts processes that the kernel has killed because memory ran out.
  std::function<int64_t()> num_memory_kills = [] { return hearth::num_memory_kills(); };
  double probe_seconds = 120;
  /// The supervisor ends what is stuck long before a collective would give up.
  distributed::ShmOptions group = {.deadline_seconds = 86400};
  /// Takes sentences for people: which worker failed and how.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  /// Tried for each device after a failure, in processes of their own. One that is false, or dies, or gives
  /// no answer within probe_seconds leaves its device out from then on.
  std::function<bool(int device)> probe;
  /// Whether the GPUs that workers name (Seat::gpus) are watched and governed: by these sensors, to these
  /// limits.
  bool watch_gpus = false;
  system::SamplerOptions sensors;
  GovernorOptions limits;
  /// How many workers continue where so many devices are left; 0: none can.
  std::function<int(int num_devices)> num_workers = [](int num_devices) { return num_devices; };
};

}  // namespace hearth::supervise
