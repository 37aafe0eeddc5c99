#pragma once

#include <memory>

#include "distributed/process_group.h"

namespace hearth::distributed {

/// Opens this process's rank of the group that mpirun or Slurm started, over any transport that MPI supports
/// (TCP, InfiniBand). Call once per process; MPI is finalized with the returned group. A group that timed out
/// cannot be closed: all of its processes are aborted. Throws UserError if Hearth was built without MPI.
std::unique_ptr<ProcessGroup> open_mpi(double deadline_seconds = 60);

}  // namespace hearth::distributed
