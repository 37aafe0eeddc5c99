#pragma once

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

}  // namespace hearth::io
