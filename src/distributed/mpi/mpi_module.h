#pragma once

#include <cstdint>
#include <memory>

#include "distributed/mpi/messages.h"

namespace hearth::distributed {

/// Symbol that libhearth_mpi.so exports as `hearth_mpi_module`. The module is linked against MPI; the program
/// is not, because MPI libraries start threads and replace memory functions of every process that loads them.
struct MpiModule {
  uint64_t layout;  ///< kMpiModuleLayout of the sources that the module was built from
  std::unique_ptr<ProcessGroup> (*open)(double deadline_seconds);
};
/// Interface version: differs if a module and the program disagree on the layout of MessageProcessGroup.
inline constexpr uint64_t kMpiModuleLayout = sizeof(MessageProcessGroup);

}  // namespace hearth::distributed
