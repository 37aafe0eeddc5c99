#pragma once

#include <memory>
#include <string>
#include <vector>

#include "distributed/process_group.h"

namespace hearth::run {

/// Returns the number of processes that mpirun, or srun with PMIx, started, including this one; 1 if this
/// process was started alone.
int num_mpi_processes();
/// True if this process was started alone or is rank 0 of several processes.
bool is_first_mpi_process();
/// Returns `overrides`, with devices=num_mpi_processes() added if there are several processes and `overrides`
/// do not contain devices.
std::vector<std::string> with_mpi_devices(std::vector<std::string> overrides);
/// Opens the MPI group of all processes that were started together; returns null for a single process.
/// `num_workers`: recipe.devices; throws a UserError if it differs from the number of processes.
std::unique_ptr<distributed::ProcessGroup> open_mpi_group(int64_t num_workers);

}  // namespace hearth::run
