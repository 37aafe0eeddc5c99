#pragma once

#include <memory>

#include "base/function_ref.h"
#include "distributed/process_group.h"
#include "distributed/shm/options.h"

namespace hearth::distributed {

struct ShmMemory;

/// A group of ranks on one machine. Construct it once; then each rank, a process forked afterwards or a
/// thread, calls open().
class ShmGroup {
 public:
  explicit ShmGroup(int size, const ShmOptions& options = {});
  ~ShmGroup();
  /// Opens the process group of a rank; the ShmGroup must outlive it.
  std::unique_ptr<ProcessGroup> open(int rank);
  int size() const;

  /// Describes the collective that a rank is in: "all_reduce 3 of step 412", or "nothing".
  std::string whereabouts(int rank) const;
  /// Makes every rank that waits now or later throw CommError naming `rank` as missing.
  void give_up(int rank);

  /// Memory shared by the ranks (distributed/shm/memory.h).
  const ShmMemory& memory() const { return *memory_; }

 private:
  std::unique_ptr<ShmMemory> memory_;
};

/// Calls work() as every rank of a group: rank 0 in this process, the others in forked processes, so the
/// caller must be single-threaded. Returns when all have ended; throws InternalError if another rank failed.
void run_ranks(int size, FunctionRef<void(ProcessGroup&)> work);

}  // namespace hearth::distributed
