#pragma once

#include <memory>

#include "distributed/process_group.h"

namespace hearth::distributed {

/// Opens this process's rank of the group that mpirun or Slurm started, over any transport that MPI supports
/// (TCP, InfiniBand). Call this once per process; MPI is finalized when the group is destroyed. If a
/// collective has timed out, MPI cannot be finalized: the destructor then aborts all processes of the group.
/// Throws UserError if libhearth_mpi.so is missing; only builds with MPI have it.
std::unique_ptr<ProcessGroup> open_mpi(double deadline_seconds = 60);

}  // namespace hearth::distributed
