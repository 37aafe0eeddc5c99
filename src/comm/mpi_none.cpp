#include "base/error.h"
#include "comm/mpi.h"

namespace hearth::comm {

std::unique_ptr<Transport> open_mpi(double) {
  user_error(
      "expected a Hearth with MPI, got one that was built without; install libopenmpi-dev and openmpi-bin, "
      "then "
      "tools/build");
}

}  // namespace hearth::comm
