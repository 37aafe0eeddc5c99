#pragma once

#include <functional>
#include <string>

#include "base/control_group.h"
#include "distributed/shm/options.h"
#include "supervise/governor.h"
#include "system/sampler.h"

namespace hearth::supervise {

/// Options of supervise().
struct SupervisorOptions {
  /// Number of devices; see num_workers.
  int size = 1;
  /// Heartbeat timeout in phases without regular heartbeats, and in other phases until their interval is
  /// known. A worker can raise it (Heartbeat::allow). Time blocked on output does not count.
  double start_seconds = 600;
  /// Min. timeout in the phases training and evaluating. Their timeout is 20 times the longest heartbeat
  /// interval.
  double min_timeout_seconds = 10;
  /// A worker that has been stopped (SIGSTOP) for longer counts as failed.
  double stopped_seconds = 1;
  int max_failures = 1000;  ///< total number of failures after which the run ends
  /// Returns the number of processes that the kernel has killed because memory ran out.
  std::function<int64_t()> num_memory_kills = [] { return hearth::num_memory_kills(); };
  double probe_seconds = 120;
  /// The timeout of collectives is long, since the supervisor ends stuck workers before.
  distributed::ShmOptions group = {.deadline_seconds = 86400};
  /// Receives messages for the user: which worker failed and how.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  /// Tests a device after a failure, in a separate process. The device is disabled if it returns false, dies,
  /// or does not return within probe_seconds.
  std::function<bool(int device)> probe;
  /// True to watch the sensors of the GPUs that workers register (WorkerContext::gpus) and to govern them by
  /// `limits`.
  bool watch_gpus = false;
  system::SamplerOptions sensors;
  GovernorOptions limits;
  /// Returns the number of workers that continue with `num_devices` devices; 0 if none can.
  std::function<int(int num_devices)> num_workers = [](int num_devices) { return num_devices; };
};

}  // namespace hearth::supervise
