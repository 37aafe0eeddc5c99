#include "distributed/mpi/mpi.h"

#include "base/error.h"
#include "base/shared_library.h"
#include "distributed/mpi/mpi_module.h"

namespace hearth::distributed {

std::unique_ptr<ProcessGroup> open_mpi(double deadline_seconds) {
  const std::filesystem::path file = find_module("mpi");
  if (file.empty()) {
    user_error(
        "this build of Hearth has no MPI (libhearth_mpi.so); install libopenmpi-dev and openmpi-bin, then "
        "run "
        "tools/build");
  }
  const SharedLibrary library({file.string()}, SharedLibrary::Symbols::offered);
  if (!library) {
    user_error("cannot open the module for MPI: {}; install the MPI library that Hearth was built with",
               library.fault());
  }
  const MpiModule* module = nullptr;
  if (!library.find("hearth_mpi_module", module) || module->layout != kMpiModuleLayout)
    user_error("{} belongs to another build of Hearth; run tools/build again", file.string());
  return module->open(deadline_seconds);
}

}  // namespace hearth::distributed
