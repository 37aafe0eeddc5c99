#include "base/error.h"
#include "distributed/mpi/mpi.h"

namespace hearth::distributed {

std::unique_ptr<ProcessGroup> open_mpi(double) {
  user_error(
      "expected a Hearth with MPI, got one that was built without; install libopenmpi-dev and openmpi-bin, "
      "then "
      "tools/build");
}

}  // namespace hearth::distributed
