#include "run/launched.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"
#include "distributed/mpi/mpi.h"

namespace hearth::run {
namespace {

/// Timeout of collectives between MPI processes. Long, because the other ranks wait in a collective while
/// rank 0 evaluates.
constexpr double kTimeoutSeconds = 3600;

}  // namespace

int num_mpi_processes() {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (size == nullptr && std::getenv("PMIX_RANK") != nullptr) size = std::getenv("SLURM_NTASKS");
  return size == nullptr ? 1 : std::max(1, std::atoi(size));
}

bool is_first_mpi_process() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (rank == nullptr) rank = std::getenv("PMIX_RANK");
  return rank == nullptr || num_mpi_processes() == 1 || std::atoi(rank) == 0;
}

std::vector<std::string> with_mpi_devices(std::vector<std::string> overrides) {
  const bool says =
      std::ranges::any_of(overrides, [](const auto& text) { return text.starts_with("devices="); });
  if (num_mpi_processes() > 1 && !says) overrides.push_back(fmt::format("devices={}", num_mpi_processes()));
  return overrides;
}

std::unique_ptr<distributed::ProcessGroup> open_mpi_group(int64_t num_workers) {
  if (num_mpi_processes() == 1) return nullptr;
  if (num_mpi_processes() != num_workers)
    user_error("{} processes were started together, but devices is {}; remove devices", num_mpi_processes(),
               num_workers);
  return distributed::open_mpi(kTimeoutSeconds);
}

}  // namespace hearth::run
