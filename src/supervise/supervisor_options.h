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
  /// Number of devices, with indices 0 to size - 1. The number of workers follows from num_workers.
  int size = 1;
  /// Heartbeat timeout in phases without regular heartbeats, and in training and evaluation until the
  /// interval between heartbeats is known. A worker can raise it (Heartbeat::allow). Time in which output
  /// blocks does not count.
  double start_seconds = 600;
  /// Min heartbeat timeout in training and evaluation, where the timeout is 20 times the longest interval
  /// between heartbeats.
  double min_timeout_seconds = 10;
  /// A worker that was stopped (SIGSTOP) for more than this time has failed.
  double stopped_seconds = 1;
  int max_failures = 1000;  ///< total number of failures after which the run ends
  /// Returns how many processes the kernel has killed because memory ran out.
  std::function<int64_t()> num_memory_kills = [] { return hearth::num_memory_kills(); };
  double probe_seconds = 120;
  /// Options of the workers' process group. The timeout of collectives is long, because the supervisor ends
  /// stuck workers earlier.
  distributed::ShmOptions group = {.deadline_seconds = 86400};
  /// Receives messages for the user, such as which worker failed and how.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  /// Receives the description of each failed attempt.
  std::function<void(const std::string&)> report_failure = [](const std::string&) {};
  /// Tests a device after a failure; called in a separate process. The device is disabled if the function
  /// returns false, the process dies, or probe_seconds pass.
  std::function<bool(int device)> probe;
  /// True to read the sensors of the GPUs that workers register, and to keep the GPUs within `limits`.
  bool watch_gpus = false;
  system::SamplerOptions sensors;
  GovernorOptions limits;
  /// Returns the number of workers for `num_devices` working devices; 0 if the run cannot continue.
  std::function<int(int num_devices)> num_workers = [](int num_devices) { return num_devices; };
};

}  // namespace hearth::supervise
