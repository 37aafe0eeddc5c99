#pragma once

#include <functional>

#include "supervise/supervisor_options.h"
#include "supervise/worker_context.h"

namespace hearth::supervise {

/// Result of supervise() after too many failures, in place of a worker's status.
inline constexpr int kGaveUp = 75;

/// Forks workers that run `work`, and restarts all of them if one fails: it dies, exits with an unknown
/// status, is stopped, or exceeds its heartbeat timeout. Returns the exit status of rank 0, or kMistake if
/// any worker returns it, kInterrupted after a signal, or kGaveUp after three failures at one step, four
/// failures without progress, max_failures in total, or if too few devices are left. The first SIGINT or
/// SIGTERM sets WorkerContext::stop, the second kills the workers. SIGHUP, unless it was ignored, counts as a
/// first signal only and is ignored from then on, since shells and kernels both send it. The calling process
/// must have one thread and no open device.
int supervise(const std::function<int(const WorkerContext&)>& work, const SupervisorOptions& options);

}  // namespace hearth::supervise
