#pragma once

#include <functional>

#include "supervise/seat.h"
#include "supervise/supervisor_options.h"

namespace hearth::supervise {

/// What supervise returns in place of a worker's status: too many have failed.
inline constexpr int kGaveUp = 75;

/// Has forked workers do `work`, and all of them once more when one fails: dies, ends with an unknown status,
/// is stopped, or does not beat in time while no other one does. Returns the status of rank 0, or one that is
/// kMistake; kInterrupted after SIGINT or SIGTERM, of which the first sets Seat::stop and the second ends
/// the workers, or after SIGHUP that is not ignored, which is never the second: shells and kernels both send
/// it, and it is ignored from then on; kGaveUp after three failures at one step, four without a later step
/// between, most_failures, or where too few devices are left. This process has one thread and has opened no
/// device.
int supervise(const std::function<int(const Seat&)>& work, const SupervisorOptions& options);

}  // namespace hearth::supervise
