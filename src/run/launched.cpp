#include "run/launched.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/text.h"
#include "distributed/mpi/mpi.h"

namespace hearth::run {
namespace {

/// Timeout of a collective: the other ranks wait in one while rank 0 evaluates.
constexpr double kDeadlineSeconds = 3600;

}  // namespace

int num_launched() {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (size == nullptr && std::getenv("PMIX_RANK") != nullptr) size = std::getenv("SLURM_NTASKS");
  return size == nullptr ? 1 : std::max(1, std::atoi(size));
}

std::vector<std::string> with_launched(std::vector<std::string> overrides) {
  const bool says =
      std::ranges::any_of(overrides, [](const auto& text) { return text.starts_with("devices="); });
  if (num_launched() > 1 && !says) overrides.push_back(fmt::format("devices={}", num_launched()));
  return overrides;
}

std::unique_ptr<distributed::ProcessGroup> join_launched(int64_t num_workers) {
  if (num_launched() == 1) return nullptr;
  if (num_launched() != num_workers)
    user_error("{} processes were started together, but devices is {}; remove devices", num_launched(),
               num_workers);
  return distributed::open_mpi(kDeadlineSeconds);
}

}  // namespace hearth::run
