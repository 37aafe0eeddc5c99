#pragma once

#include <memory>

#include "base/function_ref.h"
#include "distributed/process_group.h"
#include "distributed/shm/options.h"

namespace hearth::distributed {

struct ShmMemory;

/// Shared memory for a group of ranks on one machine. Constructed once; afterwards each rank, which is a
/// process forked later or a thread, calls open().
class ShmGroup {
 public:
  explicit ShmGroup(int size, const ShmOptions& options = {});
  ~ShmGroup();
  /// Opens the process group of a rank; the ShmGroup must outlive it.
  std::unique_ptr<ProcessGroup> open(int rank);
  int size() const;

  /// Describes the collective that a rank is in: "all_reduce 3 of step 412", or "nothing".
  std::string whereabouts(int rank) const;
  /// Declares a rank missing: every rank that waits in a collective now or later throws CommError naming it.
  void give_up(int rank);

  /// Memory shared by the ranks (distributed/shm/memory.h).
  const ShmMemory& memory() const { return *memory_; }

 private:
  std::unique_ptr<ShmMemory> memory_;
};

/// Calls work() on every rank of a new group: rank 0 in this process, the others in forked processes, so the
/// caller must be single-threaded. Returns when all have ended. Throws InternalError if a forked process
/// failed.
void run_ranks(int size, FunctionRef<void(ProcessGroup&)> work);

}  // namespace hearth::distributed
