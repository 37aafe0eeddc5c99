#include "base/error.h"
#include "distributed/mpi/mpi.h"

namespace hearth::distributed {

std::unique_ptr<ProcessGroup> open_mpi(double) {
  user_error("this build of Hearth has no MPI; install libopenmpi-dev and openmpi-bin, then run tools/build");
}

}  // namespace hearth::distributed
