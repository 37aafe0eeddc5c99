#pragma once

#include <functional>

#include "supervise/supervisor_options.h"
#include "supervise/worker_context.h"

namespace hearth::supervise {

/// Exit status of supervise() if it gives up after too many failures.
inline constexpr int kGaveUp = 75;

/// Forks workers that run `work`. If a worker fails, restarts all of them: it dies, exits with an unknown
/// status, is stopped, or exceeds its heartbeat timeout. Returns the exit status of rank 0; kMistake if any
/// worker returns it; kInterrupted after a signal; kGaveUp after three failures at the same step, four
/// failures without progress, max_failures in total, or if too few devices are left. The first SIGINT or
/// SIGTERM sets WorkerContext::stop, the second kills the workers. SIGHUP, unless the process ignored it
/// before, counts as a first signal only and is then ignored, because shells and kernel may both send it. The
/// calling process must have one thread and no open device.
int supervise(const std::function<int(const WorkerContext&)>& work, const SupervisorOptions& options);

}  // namespace hearth::supervise
