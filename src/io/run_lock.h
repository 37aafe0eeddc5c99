#pragma once

#include <string>

#include "base/file.h"

namespace hearth::io {

/// Locks a run folder for one process by flock on its file `.lock`, which contains the name of the process.
/// The kernel releases the lock when the process ends. On file systems without locks, nothing is locked.
class RunLock {
 public:
  /// Waits up to `timeout_seconds` for the lock of an existing folder. Throws a UserError naming the process
  /// that holds it, or if `.lock` is a symbolic link.
  RunLock(const fs::path& folder, double timeout_seconds);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_;
};

/// Process that has the lock of a run folder.
struct LockOwner {
  enum class Presence {
    none,     ///< no process on this machine has the lock
    alive,    ///< a process on this machine has the lock
    unknown,  ///< the process is on another machine, or of another user
  };
  Presence presence = Presence::none;
  std::string name;  ///< "process 12 on host"; empty if none
};
/// Determines from `.lock` and /proc which process has the lock, without touching the lock.
LockOwner find_lock_owner(const fs::path& folder);

}  // namespace hearth::io
