#pragma once

#include <memory>

#include "base/function_ref.h"
#include "distributed/process_group.h"
#include "distributed/shm/options.h"

namespace hearth::distributed {

struct ShmMemory;

/// A group of ranks of one machine: made once, then each rank, a process forked after it or a thread, opens
/// its end.
class ShmGroup {
 public:
  explicit ShmGroup(int size, const ShmOptions& options = {});
  ~ShmGroup();
  std::unique_ptr<ProcessGroup> open(int rank);
  int size() const;

  /// Where a rank is: its collective in words, "all_reduce 3 of step 412", or "none".
  std::string whereabouts(int rank) const;
  /// Lets every rank that waits, or will, throw CommError: `rank` is missing.
  void give_up(int rank);

  /// What its ranks share (distributed/shm/memory.h).
  const ShmMemory& memory() const { return *memory_; }

 private:
  std::unique_ptr<ShmMemory> memory_;
};

/// Calls work() as every rank of a group: as rank 0 here, as the others in processes forked for it, so that
/// this one may have a single thread. Returns when all have ended; InternalError when another one threw.
void run_ranks(int size, FunctionRef<void(ProcessGroup&)> work);

}  // namespace hearth::distributed
