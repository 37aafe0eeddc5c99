#pragma once

#include <memory>

#include "distributed/process_group.h"

namespace hearth::distributed {

/// This process's rank among those that mpirun or Slurm started, over whatever MPI finds between them: TCP,
/// InfiniBand. Once in a process; it ends with what it returns. A group that missed a deadline cannot be
/// closed: with it end all its processes. UserError where Hearth was built without MPI.
std::unique_ptr<ProcessGroup> open_mpi(double deadline_seconds = 60);

}  // namespace hearth::distributed
